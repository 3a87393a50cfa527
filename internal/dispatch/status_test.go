package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestStatusAndMetricsG7ShowWhatIsThere(t *testing.T) {
	bubble(t, Config{Interval: time.Second, MaxInFlight: 8}, func(f *fixture) {
		f.live()
		f.broker.set(func(b *broker) {
			b.slow = func() time.Duration { return time.Minute }
		})
		f.outbox.insert(sized(0, "a", 1000))
		f.after(time.Millisecond)
		f.outbox.insert(sized(0, "b", 1000)) // too soon for another snapshot, and nothing more happens
		f.after(statusPause)
		s := f.Status()
		if s.Mode != Live || s.InFlight != 2 || s.Bytes < 2000 || s.Blocked != 0 || !s.SinkUp || s.Reason != "the poll has caught up" {
			t.Errorf("status %+v", s)
		}
		for name, want := range map[string]float64{
			"in_flight_events": 2, "in_flight_bytes": float64(s.Bytes), "blocked_keys": 0, "sink_up": 1, "breaker_open": 0, "publish_seconds": 0,
		} {
			if got := f.metric(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		for mode, want := range map[Mode]float64{Live: 1, CatchUp: 0, Polling: 0, Standby: 0} {
			if got := f.metric("mode", mode.String()); got != want {
				t.Errorf("mode %v is %v", mode, got)
			}
		}
		f.after(time.Minute)
		if s := f.Status(); s.InFlight != 0 || s.Bytes != 0 {
			t.Errorf("when everything is settled the status says %+v", s)
		}

		f.broker.set(func(b *broker) { b.slow, b.fails[3] = nil, 1 })
		f.outbox.set(func(o *outbox) { o.retry = time.Hour })
		f.outbox.insert(row(0, "c"), row(0, "c"), row(0, "d"))
		f.after(2 * time.Second)
		if f.metric("blocked_keys") != 1 || f.metric("publish_failures_total", "retryable") != 1 || f.metric("publish_failures_total", "not_attempted") != 1 {
			t.Errorf("%v keys are blocked, %v failures", f.metric("blocked_keys"), f.metric("publish_failures_total", "retryable"))
		}
		if f.metric("events_published_total", "wal", "orders") != 3 || f.metric("commit_to_ack_seconds", "wal") != 3 {
			t.Errorf("%v published, %v latencies", f.metric("events_published_total", "wal", "orders"), f.metric("commit_to_ack_seconds", "wal"))
		}
		if f.metric("events_received_total", "wal") != 5 {
			t.Errorf("%v received", f.metric("events_received_total", "wal"))
		}
	})
}

func TestStatusKeepsTheLastChangesAndWhenTheyWere(t *testing.T) {
	bubble(t, Config{Interval: time.Second}, func(f *fixture) {
		began := time.Now()
		for range 30 {
			f.live()
			f.outbox.lose()
			f.after(1200 * time.Millisecond)
		}
		s := f.Status()
		if len(s.Changes) != keptChanges {
			t.Errorf("%d changes are kept, want %d", len(s.Changes), keptChanges)
		}
		for i, c := range s.Changes[1:] {
			if c.From != s.Changes[i].To || c.At.Before(s.Changes[i].At) || c.Reason == "" {
				t.Errorf("%+v follows %+v", c, s.Changes[i])
			}
		}
		if last := s.Changes[keptChanges-1]; s.Mode != last.To || !s.Since.Equal(last.At) || s.Reason != last.Reason || !s.Since.After(began) {
			t.Errorf("%v since %v: %s; the last change is %+v", s.Mode, s.Since, s.Reason, last)
		}
		text, err := json.Marshal(s)
		if err != nil || !strings.Contains(string(text), `"mode":"POLLING"`) {
			t.Errorf("%s, %v", text, err)
		}
	})
}

func TestStatusAtRestBeatsAndShowsTheLastPass(t *testing.T) {
	bubble(t, Config{Interval: 5 * time.Minute}, func(f *fixture) {
		f.live()
		passed := f.Status().LastPass
		if passed.IsZero() {
			t.Fatal("no pass has ended")
		}
		beats := map[time.Time]bool{}
		for range 100 {
			f.after(time.Second)
			beat := f.Status().Beat
			if d := time.Since(beat); d > beatEvery {
				t.Fatalf("no beat for %v", d)
			}
			beats[beat] = true
		}
		if len(beats) > 12 {
			t.Errorf("the owner was awake in %d of 100 s, though nothing happened", len(beats))
		}
		f.after(5 * time.Minute)
		if p := f.Status().LastPass; !p.After(passed) {
			t.Errorf("the last pass was at %v, as before", p)
		}
	})
}

func TestMetricsBoundTheTopicLabel(t *testing.T) {
	bubble(t, Config{}, func(f *fixture) { // with three topics at most
		f.live()
		var events []*event.Event
		for i := range 100 {
			e := row(0, fmt.Sprint("key ", i))
			e.Topic = fmt.Sprint("topic ", i%50)
			events = append(events, e)
		}
		f.outbox.insert(events...)
		f.after(time.Second)
		families, err := f.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		topics, sum := map[string]bool{}, 0.0
		for _, family := range families {
			if family.GetName() != "cdc_relay_events_published_total" {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "topic" {
						topics[l.GetValue()] = true
					}
				}
				sum += m.GetCounter().GetValue()
			}
		}
		if len(topics) != 4 || !topics[otherTopic] || sum != 100 {
			t.Errorf("topics %v, %v events", topics, sum)
		}
		if n := f.metric("events_published_total", "wal", otherTopic); n != 94 {
			t.Errorf("%v events of other topics, want 94", n)
		}
	})
}

func TestMetricsShowStandbyUntilDispatchRunsAndAfterIt(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, 10)
	if metric(t, reg, "mode", "STANDBY") != 1 || metric(t, reg, "sink_up") != 1 {
		t.Error("a new instance does not stand by")
	}
	m.show(&Status{Mode: Live})
	if metric(t, reg, "mode", "STANDBY") != 0 || metric(t, reg, "mode", "LIVE") != 1 || metric(t, reg, "sink_up") != 0 {
		t.Error("LIVE does not show")
	}
	m.Standby()
	if metric(t, reg, "mode", "STANDBY") != 1 || metric(t, reg, "mode", "LIVE") != 0 {
		t.Error("STANDBY does not show")
	}
}

func TestSenderForgetsTopicsBeyondItsBound(t *testing.T) {
	f := newFixture(t, Config{})
	s := sender{Dispatcher: f.Dispatcher, topics: map[string]*topicCounters{}}
	for i := range 10_000 {
		e := row(int64(i), "a")
		e.Topic = fmt.Sprint(i)
		s.count([]item{{Event: e}}, []error{nil})
	}
	if len(s.topics) > 4097 {
		t.Errorf("%d topics are kept", len(s.topics))
	}
	if n := f.metric("events_published_total", "wal", otherTopic); n != 9997 {
		t.Errorf("%v events of other topics", n)
	}
}

func TestQuietLogsANewErrorAtOnceAndTheSameOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logs{}
		q := newQuiet(slog.New(slog.NewTextHandler(l, nil)))
		expect := func(n int, last string) {
			t.Helper()
			got := l.lines("failed")
			if len(got) != n || !strings.Contains(got[n-1], last) {
				t.Fatalf("logged %q, want %d lines, the last with %s", got, n, last)
			}
		}
		q.warn("failed", nil)
		for range 100 {
			q.warn("failed", errors.New("one"))
			time.Sleep(100 * time.Millisecond)
		}
		expect(1, "error=one times=1")
		q.warn("failed", errors.New("two"))
		expect(2, "error=two")
		time.Sleep(quietFor)
		q.warn("failed", errors.New("two"))
		expect(2, "error=two")
		time.Sleep(time.Second)
		q.warn("failed", errors.New("two"))
		expect(3, "error=two times=2")
		q.over()
		q.warn("failed", errors.New("two"))
		expect(4, "error=two times=1")
	})
}
