package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestCase16_AnOutageFailsNothingAndEverythingIsSentAfterIt(t *testing.T) {
	for name, ramp := range map[string]time.Duration{"at once": 0, "ramped up": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Config{MaxInFlight: 200, RampUp: ramp}, func(f *fixture) {
				f.live()
				f.outbox.insert(many(50, 10)...)
				f.after(time.Second)
				f.broker.set(func(b *broker) { b.away = errAway })
				for range 60 {
					f.outbox.insert(many(20, 10)...)
					f.after(time.Second)
				}
				if f.Status().SinkUp || f.metric("sink_up") != 0 || f.metric("breaker_open") != 1 {
					t.Error("the outage doesn't show")
				}
				expectGrowing(t, f.broker.probes, 200*time.Millisecond, 10*time.Second)
				f.broker.set(func(b *broker) { b.away = nil })
				f.after(40 * time.Second)
				f.expectAll()
				f.expectMode(Live)
				if len(f.outbox.failures) != 0 {
					t.Errorf("%d events have failed: an outage is no failure of an event", len(f.outbox.failures))
				}
				s := f.Status()
				if last := s.Changes[len(s.Changes)-2:]; last[0].To != CatchUp || last[1].To != Live || !s.SinkUp {
					t.Errorf("sink up %v, the last changes are %+v", s.SinkUp, last)
				}
				if got := f.logged.lines("sink is not available"); len(got) == 0 || len(got) > 3 || !strings.Contains(got[0], "away") {
					t.Errorf("logged %q", got)
				}
				if got := f.logged.lines("sink is available again"); len(got) != 1 {
					t.Errorf("logged %q", got)
				}
			})
		})
	}
}

// expectGrowing expects pauses that double, give or take the half, up to a most.
func expectGrowing(t *testing.T, at []time.Time, initial, most time.Duration) {
	t.Helper()
	if len(at) < 3 {
		t.Fatalf("%d probes", len(at))
	}
	want := initial
	for i := 1; i < len(at); i++ {
		if pause := at[i].Sub(at[i-1]); pause < want/2 || pause > want+want/2 {
			t.Errorf("pause %d is %v, want about %v", i, pause, want)
		}
		want = min(2*want, most)
	}
}

func TestOutageOfHoursIsProbedToItsEnd(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.broker.set(func(b *broker) { b.away = errAway })
		f.outbox.insert(many(10, 10)...)
		f.after(5 * time.Hour)
		if n := len(f.broker.probes); n < 1200 || n > 3700 {
			t.Errorf("%d probes in five hours, want one each 5 to 15 s", n)
		}
		f.broker.set(func(b *broker) { b.away = nil })
		f.after(20 * time.Second)
		f.expectAll()
	})
}

func TestOutageAProbeThatHangsIsGivenUp(t *testing.T) {
	bubble(t, Config{ProbeTimeout: time.Second}, func(f *fixture) {
		f.broker.set(func(b *broker) { b.away, b.silent = errAway, true })
		f.outbox.insert(row(0, "a"))
		f.Wake()
		f.after(30 * time.Second)
		if n := len(f.broker.probes); n < 4 || n > 12 {
			t.Errorf("%d probes in 30 s", n)
		}
	})
}

func TestOutageFromTheStartIsSeenWithoutARowToDeliver(t *testing.T) {
	away := func(f *fixture) { f.broker.away = errAway }
	bubble(t, Config{}, func(f *fixture) {
		f.after(time.Second)
		if f.Status().SinkUp || f.metric("sink_up") != 0 || f.Status().SinkReason == "" {
			t.Errorf("the status says %+v", f.Status())
		}
		f.broker.set(func(b *broker) { b.away = nil })
		f.outbox.insert(many(10, 10)...)
		f.after(10 * time.Second)
		f.expectAll()
	}, away)
	bubble(t, Config{}, func(f *fixture) {
		f.stopHard()
		f.returned(nil)
		if got := f.logged.lines("sink is not"); len(got) != 0 {
			t.Errorf("the end of the probe by a stop is logged as an outage: %q", got)
		}
	}, func(f *fixture) { f.broker.silent = true })
}

// A sink can answer the probe and still refuse what it is given (a broker that is up and full, say). It must not be asked
// as fast as it answers.
func TestOutageASinkThatAnswersTheProbeAndTakesNothingIsAskedAtAGrowingPause(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		f.outbox.insert(many(10, 10)...)
		f.after(0)
		f.broker.set(func(b *broker) { b.callsBad = errAway })
		f.outbox.insert(many(10, 10)...)
		f.after(10 * time.Minute)
		if n := len(f.broker.probes); n > 80 {
			t.Errorf("%d probes in ten minutes", n)
		}
		f.broker.set(func(b *broker) { b.callsBad = nil })
		f.after(20 * time.Second)
		f.expectAll()
		f.broker.set(func(b *broker) { b.probes, b.away = nil, errAway })
		f.outbox.insert(row(0, "a"))
		f.after(0)
		if n := len(f.broker.probes); n != 1 {
			t.Errorf("%d probes: a sink that was well for a while is probed at once", n)
		}
	})
}

// One topic of many that the sink has no place for must not make a storm of the others' ups and downs.
func TestOutageOfSomeEventsIsNotAskedForInAStorm(t *testing.T) {
	bubble(t, Config{Lanes: 4}, func(f *fixture) {
		f.live()
		f.broker.set(func(b *broker) {
			b.instead = func(_ context.Context, events []*event.Event) []error {
				errs := make([]error, len(events))
				for i, e := range events {
					if e.Key == "key 3" {
						errs[i] = errAway
						time.Sleep(100 * time.Millisecond)
						continue
					}
					b.set(func(b *broker) { b.take(e) })
				}
				return errs
			}
		})
		for range 100 {
			f.outbox.insert(many(10, 10)...)
			f.after(100 * time.Millisecond)
		}
		if n := len(f.broker.probes); n < 20 || n > 60 {
			t.Errorf("%d probes in 10 s, want one each 0.2 to 0.5 s, as the sink takes something each time", n)
		}
		f.broker.set(func(b *broker) { b.instead = nil })
		f.after(30 * time.Second)
		f.expectAll()
	})
}

func TestOutageEachIsLoggedHoweverSoonItFollows(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) {
		f.live()
		for n := range 3 {
			f.broker.set(func(b *broker) { b.away = errAway })
			f.outbox.insert(row(0, "a"))
			f.after(time.Second)
			if got := f.logged.lines("sink is not available"); len(got) != n+1 {
				t.Errorf("in outage %d logged %q", n+1, got)
			}
			f.broker.set(func(b *broker) { b.away = nil })
			f.after(12 * time.Second)
		}
		f.expectAll()
	})
}

func TestOutageTheLogSaysWhyTheSinkIsAway(t *testing.T) {
	bubble(t, Config{Lanes: 1}, func(f *fixture) {
		f.broker.set(func(b *broker) {
			b.instead = func(_ context.Context, events []*event.Event) []error {
				errs := fill(len(events), errAway)
				errs[0] = errors.New("only this one")
				return errs
			}
			b.away = errors.New("still away")
		})
		f.outbox.insert(many(5, 5)...)
		f.after(time.Second)
		got := f.logged.lines("sink is not available")
		if len(got) != 2 || !strings.Contains(got[0], "error=away") || !strings.Contains(got[1], "still away") {
			t.Errorf("logged %q", got)
		}
	})
}

// Events fail again and again, on both paths, while others of their keys follow.
func TestCase20_AFailingEventIsNotOvertakenByLaterOnesOfItsKey(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream bool
		dead   string
	}{{"by the stream", true, "continue"}, {"by the poll", false, "continue"}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Config{Interval: time.Second, Lanes: 4, BatchRows: 16}, func(f *fixture) {
				f.broker.set(func(b *broker) {
					b.slow = func() time.Duration { return 2 * time.Millisecond }
					for id := int64(3); id <= 2000; id += 37 {
						b.fails[id] = 1 + int(id%4)
					}
					b.fails[1000] = 99 // becomes DEAD
				})
				f.outbox.set(func(o *outbox) { o.settle, o.slow, o.tries = 20*time.Millisecond, 10*time.Millisecond, 6 })
				if c.stream {
					f.live()
				}
				for range 200 {
					f.outbox.insert(many(10, 7)...)
					f.after(50 * time.Millisecond)
				}
				f.after(20 * time.Second)
				f.expectAll()
				if !slices.Equal(f.outbox.dead, []int64{1000}) {
					t.Errorf("dead: %v", f.outbox.dead)
				}
				for id := int64(3); id <= 2000; id += 37 {
					if n := len(f.outbox.failures[id]); n != 1+int(id%4) {
						t.Errorf("row %d has failed %d times, want %d", id, n, 1+id%4)
					}
				}
				if f.metric("fallback_rescued_total") != 0 || f.metric("order_inversions_total") != 0 || f.metric("blocked_keys") != 0 {
					t.Errorf("%v rescued, %v inversions, %v keys are blocked", f.metric("fallback_rescued_total"), f.metric("order_inversions_total"),
						f.metric("blocked_keys"))
				}
			})
		})
	}
}

func TestCase28_ARowThatWasSentAndNotYetMarkedIsNotSentByThePoll(t *testing.T) {
	bubble(t, Config{Interval: time.Second}, func(f *fixture) {
		f.outbox.set(func(o *outbox) { o.settle, o.slow = 500*time.Millisecond, 30*time.Millisecond })
		f.broker.set(func(b *broker) { b.slow = func() time.Duration { return 3 * time.Millisecond } })
		f.live()
		events := make([]*event.Event, 20)
		for i := range events {
			events[i] = row(0, fmt.Sprint("key ", i))
		}
		for range 10 * 60 * 50 { // ten minutes, a thousand events a second
			f.outbox.insert(events...)
			time.Sleep(20 * time.Millisecond)
		}
		f.after(2 * time.Second)
		f.expectAll()
		if n := len(f.broker.taken()); n != 600_000 {
			t.Errorf("%d were taken", n)
		}
		if n := len(f.outbox.begins); n < 600 {
			t.Errorf("%d passes", n)
		}
		if f.metric("fallback_rescued_total") != 0 || f.metric("refused_events_total") != 0 {
			t.Errorf("%v rescued, %v refused", f.metric("fallback_rescued_total"), f.metric("refused_events_total"))
		}
		f.expectMode(Live)
	})
}
