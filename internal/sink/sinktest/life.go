package sinktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// soon is how long a call may go on after its context ended. Generous: it is to catch what hangs, not what is slow.
const soon = 5 * time.Second

// within runs do and fails the test when it takes longer.
func within(t testing.TB, limit time.Duration, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s didn't return within %v", what, limit)
	}
}

func batch(topic string, n int) []*event.Event {
	var events []*event.Event
	for i := range n {
		events = append(events, Event(topic, fmt.Sprint("key ", i%10), fmt.Sprint(i)))
	}
	return events
}

func cancelledPublish(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	deliver(t, s, Event(topic, "before", "x"))
	for range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(rand.N(4*time.Millisecond), cancel)
		within(t, soon, "a cancelled Publish", func() {
			only(t, publish(t, ctx, s, batch(topic, 100)...), event.Unavailable, event.NotAttempted)
		})
		timer.Stop()
		cancel()
	}
	deliver(t, s, Event(topic, "after", "y"))
}

func endedContext(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, err := range publish(t, ctx, s, batch(topic, 3)...) {
		if err == nil || event.ClassOf(err) != event.Unavailable {
			t.Errorf("result %d is %v (%v)", i, err, event.ClassOf(err))
		}
	}
	if err := s.Probe(ctx); err == nil {
		t.Error("Probe succeeds with an ended context")
	}
	deliver(t, s, Event(topic, "after", "the only one"))
	if got := target.Received(t, topic, 1); len(got) != 1 {
		t.Errorf("%d messages arrived, want 1", len(got))
	}
}

func probeRunning(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	for range 2 { // with and without a live connection
		if err := s.Probe(t.Context()); err != nil {
			t.Fatalf("Probe: %v", err)
		}
		findings := s.Check(t.Context(), []string{topic})
		if len(findings) == 0 || preflight.Worst(findings) == preflight.Failure {
			t.Errorf("Check: %+v", findings)
		}
		deliver(t, s, Event(topic, "k", "p"))
	}
}

// loop publishes from several goroutines until a result isn't nil, or stop is closed.
func loop(t testing.TB, s sink.Sink, topic string, stop <-chan struct{}) *sync.WaitGroup {
	callers := new(sync.WaitGroup)
	for range 4 {
		callers.Go(func() {
			for {
				results := s.Publish(context.Background(), batch(topic, 20))
				for _, err := range results {
					if err != nil {
						only(t, results, event.Unavailable, event.NotAttempted)
						return
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	return callers
}

func closeUnderWay(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	deliver(t, s, Event(topic, "before", "x"))
	stop := make(chan struct{})
	defer close(stop)
	callers := loop(t, s, topic, stop)
	within(t, target.Bound, "Close with work under way", func() {
		ctx, cancel := context.WithTimeout(context.Background(), target.Bound)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	within(t, soon, "Publish after Close", callers.Wait)
}

func afterClose(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	deliver(t, s, Event(topic, "k", "p"))
	if err := s.Close(t.Context()); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for i, err := range publish(t, t.Context(), s, batch(topic, 3)...) {
		if err == nil || event.ClassOf(err) != event.Unavailable {
			t.Errorf("result %d is %v (%v)", i, err, event.ClassOf(err))
		}
	}
	if err := s.Probe(t.Context()); err == nil {
		t.Error("Probe succeeds after Close")
	}
	if got := target.Received(t, topic, 1); len(got) != 1 {
		t.Errorf("%d messages arrived, want 1", len(got))
	}
}

func outage(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	deliver(t, s, Event(topic, "before", "x"))
	stop := make(chan struct{})
	callers := loop(t, s, topic, stop)
	target.Stop(t)
	started := sync.OnceFunc(func() { target.Start(t) })
	defer started()
	within(t, target.Bound, "Publish during an outage", callers.Wait)
	close(stop)
	down := publish(t, t.Context(), s, batch(topic, 5)...)
	for i, err := range down {
		if err == nil || event.ClassOf(err) != event.Unavailable {
			t.Errorf("result %d is %v (%v)", i, err, event.ClassOf(err))
		}
	}
	within(t, target.Bound, "Probe during an outage", func() {
		if err := s.Probe(t.Context()); err == nil {
			t.Error("Probe succeeds during an outage")
		}
	})
	if findings := s.Check(t.Context(), []string{topic}); preflight.Worst(findings) != preflight.Failure {
		t.Errorf("Check during an outage: %+v", findings)
	}
	started()
	recovered(t, target, s)
	deliver(t, s, Event(topic, "after", "y"))
	got := payloads(target.Received(t, topic, 2))
	if len(got["before"]) != 1 || len(got["after"]) != 1 {
		t.Errorf("before the outage %v and after it %v arrived", got["before"], got["after"])
	}
}

// recovered probes until the server says that it can take events; it may serve others before.
func recovered(t *testing.T, target *Target, s sink.Sink) {
	t.Helper()
	testbed.Eventually(t, target.Bound, "a Probe that succeeds after the outage", func() error { return s.Probe(t.Context()) })
}

func madeDuringOutage(t *testing.T, target *Target) {
	topic := target.Topic(t)
	target.Stop(t)
	started := sync.OnceFunc(func() { target.Start(t) })
	defer started()
	s := target.open(t)
	within(t, target.Bound, "Publish during an outage", func() {
		for i, err := range publish(t, t.Context(), s, batch(topic, 5)...) {
			if err == nil || event.ClassOf(err) != event.Unavailable {
				t.Errorf("result %d is %v (%v)", i, err, event.ClassOf(err))
			}
		}
	})
	started()
	recovered(t, target, s)
	deliver(t, s, Event(topic, "after", "y"))
}

func closeDuringOutage(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	deliver(t, s, Event(topic, "before", "x"))
	stop := make(chan struct{})
	defer close(stop)
	callers := loop(t, s, topic, stop)
	target.Stop(t)
	defer target.Start(t)
	within(t, target.Bound, "Close during an outage", func() {
		ctx, cancel := context.WithTimeout(context.Background(), target.Bound)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	within(t, soon, "Publish after Close", callers.Wait)
}
