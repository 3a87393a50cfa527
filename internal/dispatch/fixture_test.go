package dispatch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fixture is a running Dispatcher between an outbox and a broker, in a bubble of synctest.
type fixture struct {
	*Dispatcher
	t      *testing.T
	outbox *outbox
	broker *broker
	reg    *prometheus.Registry
	logged *logs

	stop, stopHard context.CancelFunc
	result         chan error
}

// bubble runs a test with a running Dispatcher and a clock that goes on when everything waits. At the end the dispatcher
// is stopped hard, whatever it waits for. before is called before it starts.
func bubble(t *testing.T, cfg Config, test func(f *fixture), before ...func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, cfg)
		for _, change := range before {
			change(f)
		}
		ctx, stop := context.WithCancel(context.Background())
		hard, stopHard := context.WithCancel(context.Background())
		f.stop, f.stopHard = stop, stopHard
		go func() { f.result <- f.Run(ctx, hard) }()
		defer func() {
			stopHard()
			stop()
			<-f.ended
		}()
		synctest.Wait()
		f.broker.set(func(b *broker) { b.probes = nil }) // the one at the start
		test(f)
	})
}

func newFixture(t *testing.T, cfg Config) *fixture {
	f := &fixture{t: t, outbox: newOutbox(), broker: newBroker(), reg: prometheus.NewRegistry(), logged: &logs{}, result: make(chan error, 1)}
	if cfg.AskPosition == nil {
		cfg.AskPosition = f.outbox.position
	}
	log := slog.New(slog.NewTextHandler(f.logged, nil))
	f.Dispatcher = New(cfg, f.broker, f.outbox, f.outbox, NewMetrics(f.reg, 3), log)
	f.outbox.d = f.Dispatcher
	return f
}

// after lets time pass, and then everything that is due happen.
func (f *fixture) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// live connects the stream and waits for LIVE.
func (f *fixture) live() {
	f.t.Helper()
	f.outbox.connect()
	f.after(1200 * time.Millisecond)
	f.expectMode(Live)
}

func (f *fixture) expectMode(m Mode) {
	f.t.Helper()
	f.after(statusPause)
	if s := f.Status(); s.Mode != m {
		f.t.Fatalf("mode %v (%s), want %v", s.Mode, s.Reason, m)
	}
}

// expectAll expects that every row but the dead ones was taken once, in the order of its key, and marked.
func (f *fixture) expectAll() {
	f.t.Helper()
	if left := f.outbox.pending(); len(left) > 0 {
		f.t.Errorf("%d rows are PENDING: %v", len(left), left[:min(len(left), 20)])
	}
	f.broker.mu.Lock()
	defer f.broker.mu.Unlock()
	for id := int64(1); id <= f.outbox.lastID; id++ {
		want := 1
		if slices.Contains(f.outbox.dead, id) {
			want = 0
		}
		if n := f.broker.times[id]; n != want {
			f.t.Errorf("row %d was taken %d times, want %d", id, n, want)
		}
	}
	if len(f.broker.disorder) > 0 {
		f.t.Errorf("order: %q", f.broker.disorder)
	}
}

// ended expects that Run has returned, and what.
func (f *fixture) returned(want error) {
	f.t.Helper()
	synctest.Wait()
	select {
	case err := <-f.result:
		if !errors.Is(err, want) {
			f.t.Errorf("Run returned %v, want %v", err, want)
		}
	default:
		f.t.Fatal("Run has not returned")
	}
}

// metric is the value of a metric, or the number of observations of a histogram. labels are the values of its labels in
// their names' order.
func metric(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "cdc_relay_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("there is no metric %s%q", name, labels)
	return 0
}

func (f *fixture) metric(name string, labels ...string) float64 {
	f.t.Helper()
	return metric(f.t, f.reg, name, labels...)
}

// logs keeps what was logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines are those that contain text.
func (l *logs) lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
