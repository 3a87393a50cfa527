package machine

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"
)

func relayFaults() []fault {
	return []fault{
		{kind: "kill -9 of the active relay", inject: killActive, crash: true},
		{kind: "kill -9 of all relays", inject: killAll, crash: true},
		{kind: "active relay killed, another takes over", inject: handOver(syscall.SIGKILL), fit: several, crash: true},
		{kind: "active relay stopped, another takes over", inject: handOver(syscall.SIGTERM), fit: several},
		{kind: "graceful restart of the active relay", inject: restartActive},
		{kind: "relay stopped for a moment", inject: freezeShort},
		{kind: "relay stopped until another takes over", inject: freezeLong, fit: several, alone: true, long: true},
		{kind: "clock of the relay off by minutes", inject: skewClock, fit: skewable, alone: true, long: true},
	}
}

func killActive(ctx context.Context, w *world, rng *rand.Rand) error {
	i := w.active()
	if err := i.end(syscall.SIGKILL); err != nil {
		return err
	}
	pause(ctx, between(rng, 0, 3*time.Second))
	return i.start(0)
}

func killAll(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	for _, i := range w.instances {
		err = errors.Join(err, i.end(syscall.SIGKILL))
	}
	pause(ctx, between(rng, 0, 2*time.Second))
	for _, i := range w.instances {
		err = errors.Join(err, i.start(0))
	}
	return err
}

func restartActive(ctx context.Context, w *world, rng *rand.Rand) error {
	i := w.active()
	if err := i.end(syscall.SIGTERM); err != nil {
		return err
	}
	pause(ctx, between(rng, 0, time.Second))
	return i.start(0)
}

// handOver ends the active relay, and starts it again only when another one is active.
func handOver(sig syscall.Signal) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		i := w.active()
		if err := i.end(sig); err != nil {
			return err
		}
		wctx, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		if w.successor(wctx, i) == nil && ctx.Err() == nil {
			return errors.New("nobody took over from a relay that has ended")
		}
		pause(ctx, between(rng, 0, time.Second))
		return i.start(0)
	}
}

// freezeShort stops the process for less than its lease lasts.
func freezeShort(ctx context.Context, w *world, rng *rand.Rand) error {
	i := w.active()
	i.signal(syscall.SIGSTOP)
	pause(ctx, between(rng, 300*time.Millisecond, 4*time.Second))
	i.signal(syscall.SIGCONT)
	return nil
}

// freezeLong lets the process go on just when its successor begins to work: what it still has to write comes late.
func freezeLong(ctx context.Context, w *world, rng *rand.Rand) error {
	i := w.active()
	wait := between(rng, 0, 2*time.Second)
	i.signal(syscall.SIGSTOP)
	defer i.signal(syscall.SIGCONT)
	wctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if w.successor(wctx, i) == nil && ctx.Err() == nil {
		return errors.New("nobody took over from a relay that was stopped")
	}
	pause(ctx, wait)
	return nil
}

func skewClock(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	skew := []time.Duration{-10 * time.Minute, 10 * time.Minute, 7 * time.Hour}[rng.IntN(3)]
	for _, i := range w.instances {
		err = errors.Join(err, i.end(syscall.SIGTERM), i.start(skew))
	}
	pause(ctx, between(rng, 4*time.Second, 8*time.Second))
	for _, i := range w.instances {
		err = errors.Join(err, i.end(syscall.SIGTERM), i.start(0))
	}
	return err
}
