package redisstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// opened is open, and closes the sink with the test.
func opened(t testing.TB, config redisstream.Config) *redisstream.Sink {
	t.Helper()
	s := open(t, config)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// published demands that all events are acknowledged.
func published(t testing.TB, s *redisstream.Sink, events ...*event.Event) {
	t.Helper()
	for i, err := range s.Publish(t.Context(), events) {
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, len(events), err)
		}
	}
}

// recovered probes until Redis takes writes.
func recovered(t testing.TB, s *redisstream.Sink) {
	t.Helper()
	testbed.Eventually(t, 40*time.Second, "a Probe that succeeds", func() error { return s.Probe(t.Context()) })
}

// unavailable demands that all results have this reason, and that nothing else was said.
func unavailable(t testing.TB, reason string, results []error) {
	t.Helper()
	for i, err := range results {
		if event.ClassOf(err) != event.Unavailable || event.ReasonOf(err) != reason {
			t.Errorf("result %d is %v (%v), want %s", i, err, event.ClassOf(err), reason)
			return
		}
	}
}

// lanes publish as the relay does: each has a batch under way, and sends again, in order, what wasn't acknowledged, when a
// Probe has succeeded.
type lanes struct {
	t       *testing.T
	sink    *redisstream.Sink
	running sync.WaitGroup
	stop    chan struct{}

	mu      sync.Mutex
	sent    map[string]int // events acknowledged of each key, numbered from 0
	outages int
	waiting int // lanes that wait for a Probe to succeed
	rounds  int
}

const keysOfLane = 4

// run starts lanes to the streams; a key has one.
func run(t *testing.T, s *redisstream.Sink, lanesWanted, batch int, streams ...string) *lanes {
	l := &lanes{t: t, sink: s, stop: make(chan struct{}), sent: map[string]int{}}
	for lane := range lanesWanted {
		l.running.Go(func() { l.lane(lane, batch, streams[lane%len(streams)]) })
	}
	t.Cleanup(l.finish)
	return l
}

func (l *lanes) lane(lane, batch int, stream string) {
	next := map[string]int{}
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		var events []*event.Event
		for i := range batch {
			key := fmt.Sprintf("%d/%d", lane, i%keysOfLane)
			events = append(events, sinktest.Event(stream, key, fmt.Sprint(next[key])))
			next[key]++
		}
		if !l.deliver(events) {
			return
		}
		l.mu.Lock()
		l.rounds++
		for key, n := range next {
			l.sent[key] = n
		}
		l.mu.Unlock()
	}
}

// deliver publishes a batch until all of it is acknowledged, even when the lanes are to stop; not when the test has failed.
func (l *lanes) deliver(events []*event.Event) bool {
	for len(events) > 0 && !l.t.Failed() {
		var back []*event.Event
		held := map[string]bool{}
		for i, err := range l.sink.Publish(context.Background(), events) {
			e := events[i]
			switch {
			case err == nil && held[e.Key]:
				l.t.Errorf("%s of key %s was acknowledged behind a failed one", e.Payload, e.Key)
			case err == nil:
			case event.ClassOf(err) == event.Unavailable, event.ClassOf(err) == event.NotAttempted:
				held[e.Key] = true
				back = append(back, e)
			default:
				l.t.Errorf("%s of key %s: %v (%v)", e.Payload, e.Key, err, event.ClassOf(err))
				return false
			}
		}
		if events = back; len(back) == 0 {
			return true
		}
		if !l.recover() {
			l.t.Error("no Probe succeeds")
			return false
		}
	}
	return len(events) == 0
}

// recover probes until Redis takes writes again.
func (l *lanes) recover() bool {
	count := func(outages, waiting int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.outages, l.waiting = l.outages+outages, l.waiting+waiting
	}
	count(1, 1)
	defer count(0, -1)
	deadline := time.Now().Add(40 * time.Second)
	for l.sink.Probe(context.Background()) != nil {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(testbed.Tick) // a pause between tries, as the relay has
	}
	return true
}

// await waits until so many further batches were delivered.
func (l *lanes) await(rounds int) {
	l.t.Helper()
	l.mu.Lock()
	target := l.rounds + rounds
	l.mu.Unlock()
	testbed.Eventually(l.t, 60*time.Second, "batches to be delivered", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.rounds >= target || l.t.Failed()
	})
}

func (l *lanes) hadOutages() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outages
}

// allWait says whether every one of n lanes waits.
func (l *lanes) allWait(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting == n
}

func (l *lanes) finish() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.running.Wait()
}

// audit holds what is in the streams against what was acknowledged: nothing lost, and the first entries of each key in
// order. It returns the number of duplicates.
func (l *lanes) audit(read func() []redistest.Entry) (duplicates int) {
	l.t.Helper()
	l.finish()
	got := map[string][]string{}
	seen := map[string]bool{}
	for _, e := range read() {
		if id := e.Fields["id"]; seen[id] {
			duplicates++
			continue
		}
		seen[e.Fields["id"]] = true
		got[e.Fields["key"]] = append(got[e.Fields["key"]], e.Fields["payload"])
	}
	for key, n := range l.sent {
		for i := range n {
			if len(got[key]) != n || got[key][i] != fmt.Sprint(i) {
				l.t.Errorf("key %s: %d events of %d, or another order: %.300s", key, len(got[key]), n, strings.Join(got[key][max(0, i-3):], " "))
				break
			}
		}
	}
	l.t.Logf("%d events, %d outages, %d duplicates", len(seen), l.outages, duplicates)
	return duplicates
}
