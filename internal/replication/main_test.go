package replication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const patience = 30 * time.Second

// recorder is a Receiver that writes everything down and checks the order of the calls.
type recorder struct {
	mu      sync.Mutex
	events  []*event.Event
	calls   []string // Connecting, Started and Lost
	start   pglogrepl.LSN
	passed  pglogrepl.LSN
	passes  int
	lost    []error
	bad     []string // calls that came out of order
	phase   string   // "", connecting, started
	onOffer func()
}

func (r *recorder) enter(call string, phases ...string) {
	r.mu.Lock()
	if !slices.Contains(phases, r.phase) {
		r.bad = append(r.bad, fmt.Sprintf("%s in phase %q", call, r.phase))
	}
}

func (r *recorder) Connecting() {
	r.enter("Connecting", "")
	defer r.mu.Unlock()
	r.phase = "connecting"
	r.calls = append(r.calls, "Connecting")
}

func (r *recorder) Started(start pglogrepl.LSN) {
	r.enter("Started", "connecting")
	defer r.mu.Unlock()
	r.phase, r.start, r.passed = "started", start, start
	r.calls = append(r.calls, "Started")
}

func (r *recorder) Offer(e *event.Event) {
	r.enter("Offer", "started")
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.onOffer != nil {
		r.onOffer()
	}
}

func (r *recorder) Passed(pos pglogrepl.LSN) {
	r.enter("Passed", "started")
	defer r.mu.Unlock()
	if pos < r.passed {
		r.bad = append(r.bad, fmt.Sprintf("Passed went back from %v to %v", r.passed, pos))
	}
	r.passed = pos
	r.passes++
}

func (r *recorder) Lost(err error) {
	r.enter("Lost", "connecting", "started")
	defer r.mu.Unlock()
	if err == nil {
		r.bad = append(r.bad, "Lost without a reason")
	}
	r.phase = ""
	r.calls = append(r.calls, "Lost")
	r.lost = append(r.lost, err)
}

// payloads are those of all events, in the order of arrival.
func (r *recorder) payloads() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]string, len(r.events))
	for i, e := range r.events {
		out[i] = string(e.Payload)
	}
	return out
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

func (r *recorder) position() (passed pglogrepl.LSN, passes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed, r.passes
}

func (r *recorder) starts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.calls {
		if c == "Started" {
			n++
		}
	}
	return n
}

func (r *recorder) lastLost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lost) == 0 {
		return nil
	}
	return r.lost[len(r.lost)-1]
}

// lockedBuffer is a log that tests may read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// fixture is a database with an outbox and a stream of it.
type fixture struct {
	*pgtest.DB
	cfg      Config
	outboxes []*table.Outbox
	recv     *recorder
	registry *prometheus.Registry
	stream   *Stream
	log      *lockedBuffer
}

func newFixture(t *testing.T, db *pgtest.DB) *fixture {
	t.Helper()
	f := &fixture{
		DB: db, recv: &recorder{}, log: &lockedBuffer{}, registry: prometheus.NewRegistry(),
		cfg: Config{DSN: db.DSN, Slot: db.Slot, Publication: db.Publication, Create: true},
	}
	f.createOutbox(t, "outbox")
	return f
}

func (f *fixture) createOutbox(t *testing.T, name string) *table.Outbox {
	t.Helper()
	statements, err := table.DDL(table.DDLOptions{Table: name, PayloadType: "text"})
	if err != nil {
		t.Fatal(err)
	}
	f.Exec(t, strings.Join(statements, "\n"))
	return f.adopt(t, table.Spec{Table: name})
}

func (f *fixture) adopt(t *testing.T, spec table.Spec) *table.Outbox {
	t.Helper()
	o, err := table.Resolve(context.Background(), f.Connect(t), int32(len(f.outboxes)), spec)
	if err != nil {
		t.Fatal(err)
	}
	f.outboxes = append(f.outboxes, o)
	return o
}

// run starts the stream; the returned function stops it and waits, and the test's end calls it too.
func (f *fixture) run(t *testing.T) (stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	f.stream = New(f.cfg, f.outboxes, f.recv, NewMetrics(f.registry), log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.stream.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run didn't return")
		}
		f.recv.mu.Lock()
		defer f.recv.mu.Unlock()
		for _, b := range f.recv.bad {
			t.Errorf("receiver: %s", b)
		}
		if t.Failed() {
			t.Logf("calls: %v\nlog:\n%s", f.recv.calls, f.log)
		}
	})
	t.Cleanup(stop)
	return stop
}

// up waits until the stream has been started n times and is up.
func (f *fixture) up(t *testing.T, n int) {
	t.Helper()
	pgtest.Eventually(t, patience, fmt.Sprintf("%d starts of the stream", n), func() error {
		if f.recv.starts() < n || !f.stream.State().Up {
			return fmt.Errorf("%d starts; %s", f.recv.starts(), f.stream.State().Reason)
		}
		return nil
	})
}

// reason waits until the stream is down for a reason that contains all parts.
func (f *fixture) reason(t *testing.T, parts ...string) {
	t.Helper()
	pgtest.Eventually(t, patience, fmt.Sprintf("a reason with %q", parts), func() error {
		s := f.stream.State()
		for _, p := range parts {
			if s.Up || !strings.Contains(s.Reason, p) {
				return fmt.Errorf("up: %v, reason: %s", s.Up, s.Reason)
			}
		}
		return nil
	})
}

// has waits until exactly these payloads have come, in this order.
func (f *fixture) has(t *testing.T, want ...string) {
	t.Helper()
	pgtest.Eventually(t, patience, fmt.Sprintf("%d events", len(want)), func() error {
		if n := f.recv.count(); n < len(want) {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if got := f.recv.payloads(); !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
}

func (f *fixture) insert(t *testing.T, payload string) {
	t.Helper()
	f.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', $1)`, payload)
}

// metric is the sum of a metric's series.
func (f *fixture) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func (f *fixture) slotExists(t *testing.T) bool {
	t.Helper()
	return pgtest.One[bool](t, f.DB, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, f.Slot)
}

// lsn reads a position of the server.
func (f *fixture) lsn(t *testing.T, sql string, args ...any) pglogrepl.LSN {
	t.Helper()
	return pgtest.One[pglogrepl.LSN](t, f.DB, sql, args...)
}

// ddl is the outbox as a partitioned table.
const partitionedOutbox = `
CREATE TABLE parted (id bigint GENERATED BY DEFAULT AS IDENTITY, topic text NOT NULL, key text, payload text,
	status text NOT NULL DEFAULT 'PENDING', created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at))
	PARTITION BY RANGE (created_at);
CREATE TABLE parted_now PARTITION OF parted FOR VALUES FROM ('2000-01-01') TO ('3000-01-01')`
