package machine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

const (
	warmUp     = 3 * time.Second // without a fault
	steady     = 600 * time.Millisecond
	backWithin = 90 * time.Second
	noFault    = "no fault"
)

// planned is a fault of the schedule, with what it draws its parameters from.
type planned struct {
	faults []fault // more than one: at once
	rng    []*rand.Rand
	rest   time.Duration // before the next
}

// plan is the endless sequence of faults that a seed determines: in each round every kind comes once.
func plan(seed uint64, kinds []fault, pairs float64) func() planned {
	rng := rand.New(rand.NewPCG(seed, 0))
	var round []fault
	source := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	next := func() fault {
		if len(round) == 0 {
			round = append(round, kinds...)
			rng.Shuffle(len(round), func(a, b int) { round[a], round[b] = round[b], round[a] })
		}
		f := round[0]
		round = round[1:]
		return f
	}
	return func() planned {
		f := next()
		p := planned{faults: []fault{f}, rng: []*rand.Rand{source()}, rest: between(rng, 200*time.Millisecond, 2*time.Second)}
		if rng.Float64() < pairs && !f.alone {
			if g := kinds[rng.IntN(len(kinds))]; !g.alone && g.kind != f.kind {
				p.faults, p.rng = append(p.faults, g), append(p.rng, source())
			}
		}
		return p
	}
}

func (p planned) kind() string {
	if len(p.faults) > 1 {
		return "two at once"
	}
	return p.faults[0].kind
}

func (p planned) String() string {
	var kinds []string
	for _, f := range p.faults {
		kinds = append(kinds, f.kind)
	}
	return strings.Join(kinds, " + ")
}

// schedule injects faults until the time is over or ctx ends, and waits after each until the relay delivers as before.
func (w *world) schedule(ctx context.Context) error {
	kinds := w.fits()
	if len(kinds) == 0 {
		return errors.New("there is no fault of these kinds that the run could inject")
	}
	next := plan(w.options.Seed, kinds, w.options.Pairs)
	w.open(history.Window{Kind: noFault})
	if err := w.back(ctx, time.Now()); err != nil {
		return err
	}
	w.tell("%-46s LIVE", "start")
	pause(ctx, warmUp)
	for until := time.Now().Add(w.options.For); time.Now().Before(until) && ctx.Err() == nil; {
		p := next()
		if err := w.strike(ctx, p); err != nil {
			return err
		}
		pause(ctx, p.rest)
	}
	return nil
}

// strike injects what is planned, mends the world and waits for the relay.
func (w *world) strike(ctx context.Context, p planned) error {
	win := history.Window{Kind: p.kind()}
	for _, f := range p.faults {
		if f.crash {
			win.Repeats++
			win.Why = append(win.Why, "a relay was killed")
		}
	}
	w.open(win)
	began := time.Now()
	var all sync.WaitGroup
	errs := make([]error, len(p.faults))
	for n, f := range p.faults {
		all.Go(func() { errs[n] = f.inject(ctx, w, p.rng[n]) })
	}
	all.Wait()
	if err := w.mend(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("mend after %s: %w", p, err)
	}
	// Of two faults one may keep the other from being injected.
	if err := errors.Join(errs...); err != nil && len(p.faults) == 1 && ctx.Err() == nil {
		w.report(history.Process, "%s: %v", p, err)
	}
	healed := time.Now()
	if err := w.back(ctx, healed); err != nil || ctx.Err() != nil {
		return err
	}
	w.tell("%-46s %6.2f s, LIVE after %6.2f s", p, healed.Sub(began).Seconds(), w.window().Back.Sub(healed).Seconds())
	return nil
}

// back waits until the relay delivers as before: an event that was committed after the fault is PUBLISHED, and one
// instance is LIVE and stays it. When it began to be so is noted in the window.
func (w *world) back(ctx context.Context, healed time.Time) error {
	w.amend(func(win *history.Window) { win.Healed = healed })
	wctx, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	from := len(w.canary.events)
	for len(w.canary.events) == from || !w.canary.events[len(w.canary.events)-1].Committed {
		if err := w.canary.once(wctx); err != nil {
			return w.notBack(ctx, err)
		}
	}
	uid := w.canary.events[len(w.canary.events)-1].UID
	delivered, since := time.Time{}, time.Time{}
	for {
		now := time.Now()
		if delivered.IsZero() && w.isPublished(wctx, uid) {
			delivered = now
		}
		if !w.live() {
			since = time.Time{}
		} else if since.IsZero() {
			since = now
		}
		if !delivered.IsZero() && !since.IsZero() && now.Sub(since) > steady {
			w.amend(func(win *history.Window) { win.Back = later(later(delivered, since), healed) })
			return nil
		}
		if !pause(wctx, look) {
			return w.notBack(ctx, fmt.Errorf("canary delivered: %v", !delivered.IsZero()))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) notBack(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return nil
	}
	var states []string
	for _, i := range w.instances {
		states = append(states, fmt.Sprintf("instance %d: %v", i.n, i.state()))
	}
	w.report(history.Process, "not back within %v after %s: %v; %s", backWithin, w.window().Kind, cause, strings.Join(states, "; "))
	return nil
}

// isPublished looks for the mark in the diary, since the row may be purged.
func (w *world) isPublished(ctx context.Context, uid int64) (published bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := w.pool.QueryRow(ctx, isMarked, uid).Scan(&published)
	return err == nil && published
}

func (w *world) open(win history.Window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	win.Began = time.Now()
	w.windows = append(w.windows, win)
}

func (w *world) amend(f func(*history.Window)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.windows[len(w.windows)-1])
}

func (w *world) window() history.Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.windows[len(w.windows)-1]
}

func (w *world) tell(format string, args ...any) {
	fmt.Fprintf(w.options.Out, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}
