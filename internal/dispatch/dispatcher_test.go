package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestRunAnEventOfTheStreamReachesTheSinkAndIsMarked(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.outbox.insert(row(0, "a"))
		synctest.Wait() // no time passes
		if got := f.broker.taken(); !slices.Equal(got, []int64{1}) || f.outbox.marks != 1 {
			t.Errorf("taken %v, %d marked", got, f.outbox.marks)
		}
		if f.broker.paths[1] != event.WAL {
			t.Errorf("it came by %v", f.broker.paths[1])
		}
	})
}

func TestRunG3EventsOfAKeyKeepTheirOrderOverAllLanes(t *testing.T) {
	bubble(t, Config{Lanes: 8, BatchRows: 7}, func(f *fixture) {
		f.broker.set(func(b *broker) { b.slow = func() time.Duration { return rand.N(20 * time.Millisecond) } })
		f.outbox.insert(many(500, 20)...) // by the poll
		f.live()
		for range 100 {
			f.outbox.insert(many(10, 20)...)
			f.after(3 * time.Millisecond)
		}
		f.after(time.Second)
		f.expectAll()
		if n := f.metric("events_received_total", "wal"); n != 1000 {
			t.Errorf("%v rows came by the stream, want 1000", n)
		}
		f.expectMode(Live)
	})
}

// many makes n events over some keys, every tenth without one.
func many(n, keys int) (events []*event.Event) {
	for i := range n {
		k := fmt.Sprint("key ", i%keys)
		if i%10 == 9 {
			k = ""
		}
		events = append(events, row(0, k))
	}
	return events
}

func TestRunASinkThatAnswersForAnotherNumberOfEventsFailsThemAll(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.broker.set(func(b *broker) {
			b.instead = func(context.Context, []*event.Event) []error { return make([]error, 7) }
		})
		f.outbox.insert(row(0, "a"))
		f.after(0)
		if errs := f.outbox.failures[1]; len(errs) != 1 || event.ClassOf(errs[0]) != event.Retryable {
			t.Fatalf("failures %v", errs)
		}
		f.broker.set(func(b *broker) { b.instead = nil })
		f.after(2 * time.Second)
		f.expectAll()
	})
}

func TestRunG1AnInvalidRowFailsForGoodAndTheSinkNeverSeesIt(t *testing.T) {
	bubble(t, Config{Lanes: 1}, func(f *fixture) {
		bad := row(0, "a")
		bad.Invalid = errors.New("headers are no object")
		f.outbox.insert(row(0, "a"), bad, row(0, "a"), bad)
		f.after(time.Second)
		slices.Sort(f.outbox.dead)
		if !slices.Equal(f.broker.taken(), []int64{1, 3}) || !slices.Equal(f.outbox.dead, []int64{2, 4}) {
			t.Errorf("taken %v, dead %v", f.broker.taken(), f.outbox.dead)
		}
		err := f.outbox.failures[2][0]
		if event.ClassOf(err) != event.Permanent || event.ReasonOf(err) != "invalid_row" || !errors.Is(err, bad.Invalid) {
			t.Errorf("failed with %v", err)
		}
		if n := f.metric("publish_failures_total", "permanent"); n != 2 {
			t.Errorf("%v permanent failures are counted", n)
		}
	})
}

func TestRunG6AnInstanceThatMayNotPublishHoldsItsBatches(t *testing.T) {
	var may atomic.Bool
	cfg := Config{MayPublish: func() error {
		if !may.Load() {
			return errors.New("the lease is uncertain")
		}
		return nil
	}}
	bubble(t, cfg, func(f *fixture) {
		f.outbox.insert(many(20, 5)...)
		f.after(30 * time.Second)
		if len(f.broker.calls) != 0 || len(f.broker.probes) != 0 || len(f.outbox.failures) != 0 {
			t.Fatalf("%d calls, %d probes, failures %v", len(f.broker.calls), len(f.broker.probes), f.outbox.failures)
		}
		if f.Status().SinkUp {
			t.Error("the status doesn't show it")
		}
	})
	bubble(t, cfg, func(f *fixture) {
		f.outbox.insert(many(20, 5)...)
		f.after(time.Second)
		may.Store(true)
		f.after(30 * time.Second)
		f.expectAll()
	})
}

func TestRunG10AStopWaitsForWhatIsInFlight(t *testing.T) {
	bubble(t, Config{Lanes: 2, BatchRows: 10}, func(f *fixture) {
		f.live()
		f.broker.set(func(b *broker) { b.slow = func() time.Duration { return 3 * time.Second } })
		f.outbox.set(func(o *outbox) { o.settle = 2 * time.Second })
		f.outbox.insert(many(50, 10)...)
		f.after(time.Second)
		f.stop()
		f.after(3 * time.Second)
		select {
		case err := <-f.result:
			t.Fatalf("Run returned %v before what was in flight was marked", err)
		default:
		}
		f.after(time.Second)
		f.returned(nil)
		taken := f.broker.taken()
		if len(taken) == 0 || len(taken) == 50 || f.outbox.marks != len(taken) {
			t.Errorf("%d of 50 taken, %d marked", len(taken), f.outbox.marks)
		}
	})
}

func TestRunG10AStopAtRestReturnsAtOnce(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.stop()
		f.returned(nil)
	})
}

func TestRunG10TheStopTimeoutEndsTheWait(t *testing.T) {
	bubble(t, Config{StopTimeout: 5 * time.Second}, func(f *fixture) {
		f.live()
		f.outbox.set(func(o *outbox) { o.settle = -1 })
		f.outbox.insert(row(0, "a"))
		f.after(0)
		f.stop()
		f.after(4 * time.Second)
		if len(f.result) != 0 {
			t.Fatal("Run has returned before the timeout")
		}
		f.after(time.Second)
		f.returned(ErrUnsettled)
		if got := f.logged.lines("stop timeout is over"); len(got) != 1 || !strings.Contains(got[0], "unsettled_events=1") {
			t.Errorf("logged %q", got)
		}
	})
}

func TestRunG10AHardStopReturnsAtOnce(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.broker.set(func(b *broker) { b.slow = func() time.Duration { return time.Hour } })
		f.outbox.insert(row(0, "a"))
		f.after(time.Second)
		f.stop()
		f.after(time.Second)
		f.stopHard()
		f.returned(ErrUnsettled)
	})
}

func TestRunG10AHardStopWithNothingInFlightLeavesNothingUnsettled(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.stopHard()
		f.returned(nil)
	})
}

func TestRunG10AHardStopEndsReadsAndProbes(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.broker.set(func(b *broker) { b.away = errAway })
		f.outbox.insert(row(0, "a"))
		f.after(time.Second)
		f.outbox.set(func(o *outbox) { o.slow = time.Hour })
		f.after(time.Second)
		f.stopHard()
		f.returned(ErrUnsettled)
	})
	bubble(t, Config{}, func(f *fixture) {
		f.outbox.set(func(o *outbox) { o.slow = time.Hour })
		f.after(time.Second)
		f.stopHard()
		f.returned(nil)
	})
}

func TestRunG1WhatTheInboxCannotTakeIsBroughtByThePoll(t *testing.T) {
	bubble(t, Config{MaxInFlight: 100}, func(f *fixture) {
		f.live()
		f.outbox.insert(many(1000, 50)...) // one transaction, before the dispatcher can take any of it
		f.after(0)
		if s := f.Status(); s.Mode != CatchUp || s.Reason != "the stream is faster than dispatch" && s.Reason != "dispatch is full" {
			t.Errorf("mode %v, reason %q", s.Mode, s.Reason)
		}
		f.after(5 * time.Second)
		f.expectAll()
		f.expectMode(Live)
		if f.metric("refused_events_total") == 0 || f.metric("fallback_rescued_total") != 0 {
			t.Errorf("%v refused, %v rescued", f.metric("refused_events_total"), f.metric("fallback_rescued_total"))
		}
	})
}

func TestRunG1WhatTheInboxDropsReturnsToCatchUpThoughDispatchHasRoom(t *testing.T) {
	var release chan struct{}
	cfg := Config{MaxInFlightBytes: 800_000, Interval: 2 * time.Second, AskPosition: func() { <-release }}
	bubble(t, cfg, func(f *fixture) {
		f.live()
		f.outbox.set(func(o *outbox) { o.blind = true })
		f.outbox.insert(row(0, "a"))
		f.after(2 * time.Second) // the poll found it, and the owner hangs in AskPosition
		f.outbox.set(func(o *outbox) { o.blind = false })
		f.outbox.insert(many(1000, 50)...) // a quarter of the bytes may wait in the inbox
		close(release)
		f.after(0)
		if s := f.Status(); s.Mode != CatchUp || s.Reason != "the stream is faster than dispatch" || f.metric("refused_events_total") != 1 {
			t.Errorf("mode %v, reason %q, %v refused", s.Mode, s.Reason, f.metric("refused_events_total"))
		}
		f.after(5 * time.Second)
		f.expectAll()
		f.expectMode(Live)
	}, func(*fixture) { release = make(chan struct{}) })
}

func TestInboxTellsOncePerDropAndKeepsItsBounds(t *testing.T) {
	f := newFixture(t, Config{MaxInFlight: 3, MaxInFlightBytes: 4 * 3000})
	kinds := func() (all []streamKind) {
		for _, msg := range f.inbox.take() {
			all = append(all, msg.kind)
			if msg.kind == sEvent {
				f.inbox.taken(msg.event)
			}
		}
		return all
	}
	for id := range int64(6) {
		f.Offer(row(id, "a"))
	}
	if got := kinds(); !slices.Equal(got, []streamKind{sEvent, sEvent, sEvent, sOverflowed}) {
		t.Errorf("beyond the rows: %v", got)
	}
	f.Offer(sized(7, "a", 50_000))
	f.Offer(row(8, "a"))
	if got := kinds(); !slices.Equal(got, []streamKind{sEvent, sOverflowed}) {
		t.Errorf("behind a large event: %v", got)
	}
	f.Offer(row(9, "a"))
	f.Offer(sized(10, "a", 50_000))
	f.Offer(row(11, "a"))
	if got := kinds(); !slices.Equal(got, []streamKind{sEvent, sOverflowed, sEvent}) {
		t.Errorf("a large event behind another: %v", got)
	}
	if f.inbox.rows.Load() != 0 || f.inbox.bytes.Load() != 0 {
		t.Errorf("%d rows and %d bytes are left", f.inbox.rows.Load(), f.inbox.bytes.Load())
	}
}

func TestConnectingReturnsAlsoAfterTheEnd(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.Connecting()
		f.stop()
		f.returned(nil)
		f.Connecting()
		f.Settled([]event.Settled{{ID: event.IntID(0, 1)}})
		f.Offer(row(1, "a"))
		f.Wake()
		f.Lost(nil)
	})
}

func TestRunWithoutAStreamPollsAndIsWoken(t *testing.T) {
	bubble(t, Config{Interval: 10 * time.Second}, func(f *fixture) {
		f.after(2 * time.Second)
		f.expectMode(Polling)
		f.outbox.insert(many(5, 5)...)
		f.after(time.Second)
		if n := len(f.broker.taken()); n != 0 {
			t.Fatalf("%d taken before the interval was over", n)
		}
		f.Wake()
		f.after(0)
		if n := len(f.broker.taken()); n != 5 {
			t.Errorf("%d taken, want 5", n)
		}
		f.outbox.insert(row(0, "a"))
		f.after(10 * time.Second)
		f.expectAll()
	})
}

func TestRunALostStreamIsReplacedByThePollAndComesBack(t *testing.T) {
	bubble(t, Config{Interval: 2 * time.Second}, func(f *fixture) {
		f.live()
		f.outbox.lose()
		f.outbox.insert(many(20, 5)...)
		f.after(2 * time.Second)
		f.expectMode(Polling)
		f.outbox.insert(many(20, 5)...)
		f.live()
		f.outbox.insert(many(20, 5)...)
		f.after(0)
		f.expectAll()
		if f.metric("fallback_rescued_total") != 0 {
			t.Error("rows are counted as rescued")
		}
	})
}

func TestRunG1AStreamThatBringsNothingIsRescuedByThePoll(t *testing.T) {
	bubble(t, Config{Interval: time.Second}, func(f *fixture) {
		f.live()
		f.outbox.set(func(o *outbox) { o.blind = true })
		f.outbox.insert(many(20, 5)...)
		f.after(3 * time.Second)
		f.expectAll()
		if n := f.metric("fallback_rescued_total"); n != 20 {
			t.Errorf("%v rows are counted as rescued, want 20", n)
		}
	})
}

func TestRunASilentStreamIsHelpedOnByANudge(t *testing.T) {
	asked := 0
	bubble(t, Config{Interval: time.Minute, AskPosition: func() { asked++ }}, func(f *fixture) {
		f.live()
		f.outbox.set(func(o *outbox) { o.streaming = false }) // still connected, but nothing comes
		f.outbox.insert(row(0, "a"))
		f.after(time.Minute)
		f.after(3 * time.Second)
		if f.outbox.nudges < 2 || asked < 3 {
			t.Errorf("%d nudges, asked %d times", f.outbox.nudges, asked)
		}
		f.outbox.set(func(o *outbox) { o.streaming = true })
		f.outbox.position()
		f.after(2 * time.Second)
		f.expectAll()
	})
}

func TestRunReadsThatFailAreTriedAgainAtAGrowingPause(t *testing.T) {
	bubble(t, Config{Interval: 10 * time.Second}, func(f *fixture) {
		f.outbox.set(func(o *outbox) { o.broken = errors.New("connection refused") })
		f.outbox.insert(many(5, 5)...)
		f.after(5 * time.Minute)
		if n := len(f.outbox.begins); n < 25 || n > 40 {
			t.Errorf("%d reads in five minutes", n)
		}
		if n := len(f.logged.lines("read pending rows failed")); n < 5 || n > 6 {
			t.Errorf("logged %d times in five minutes, want once a minute", n)
		}
		f.outbox.set(func(o *outbox) { o.broken = nil })
		f.after(11 * time.Second)
		f.expectAll()
		f.outbox.set(func(o *outbox) { o.broken = errors.New("connection refused") })
		f.after(11 * time.Second)
		if got := f.logged.lines("read pending rows failed"); !strings.Contains(got[len(got)-1], "times=1\n") {
			t.Errorf("after a read that succeeded the error is not new: %q", got[len(got)-1])
		}
	})
}
