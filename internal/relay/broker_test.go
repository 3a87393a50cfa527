package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// broker is a broker in memory. Every instance has a client of its own.
type broker struct {
	mu    sync.Mutex
	calls []string // whose, in the order in which they began
	ids   []int64  // acknowledged, in order
	away  bool     // nothing is taken
	hold  chan struct{}
	pause time.Duration
	held  int                  // calls that wait for hold
	fail  func(id int64) error // asked for each event; nil: none fails
}

// set changes how the broker behaves.
func (b *broker) set(change func(b *broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// holdCalls lets calls wait until release is called.
func (b *broker) holdCalls() (release func()) {
	hold := make(chan struct{})
	b.set(func(b *broker) { b.hold = hold })
	return sync.OnceFunc(func() {
		b.set(func(b *broker) { b.hold = nil })
		close(hold)
	})
}

func (b *broker) heldCalls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

func (b *broker) callers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// delivered are the ids in the order of their first delivery, and how many deliveries there were beyond those.
func (b *broker) delivered() (first []int64, again int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[int64]bool{}
	for _, id := range b.ids {
		if seen[id] {
			again++
			continue
		}
		seen[id] = true
		first = append(first, id)
	}
	return first, again
}

// client is the sink of one instance.
type client struct {
	*broker
	name string
}

var errAway = &event.Error{Class: event.Unavailable, Reason: "away", Err: errors.New("nobody listens; start the broker")}

// Publish implements sink.Sink.
func (c client) Publish(ctx context.Context, events []*event.Event) []error {
	errs := make([]error, len(events))
	if err := c.call(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	failed := map[string]bool{} // keys
	c.set(func(b *broker) {
		for i, e := range events {
			if failed[e.Key] {
				errs[i] = event.ErrNotAttempted
			} else if b.fail != nil {
				errs[i] = b.fail(e.ID.Int())
			}
			if errs[i] != nil {
				failed[e.Key] = true
				continue
			}
			b.ids = append(b.ids, e.ID.Int())
		}
	})
	return errs
}

func (c client) call(ctx context.Context) error {
	var hold chan struct{}
	var pause time.Duration
	var away bool
	c.set(func(b *broker) {
		b.calls = append(b.calls, c.name)
		hold, pause, away = b.hold, b.pause, b.away
		if hold != nil {
			b.held++
		}
	})
	if away {
		return errAway
	}
	if hold != nil {
		defer c.set(func(b *broker) { b.held-- })
		select {
		case <-hold:
		case <-ctx.Done():
			return &event.Error{Class: event.Unavailable, Reason: "stopped", Err: ctx.Err()}
		}
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return &event.Error{Class: event.Unavailable, Reason: "stopped", Err: ctx.Err()}
	}
}

// Probe implements sink.Sink.
func (c client) Probe(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return errAway
	}
	return nil
}

// Check implements sink.Sink.
func (client) Check(context.Context, []string) []preflight.Finding { return nil }

// Close implements sink.Sink.
func (client) Close(context.Context) error { return nil }
