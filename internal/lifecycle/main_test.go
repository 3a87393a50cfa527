package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const patience = 20 * time.Second

// fixture is a database with outbox tables.
type fixture struct {
	*pgtest.DB
	pool     *pgxpool.Pool
	tables   []*table.Outbox
	registry *prometheus.Registry
	metrics  *Metrics
}

func newFixture(t *testing.T, names ...string) *fixture {
	t.Helper()
	return fixtureOf(t, pgtest.Database(t), names...)
}

func fixtureOf(t *testing.T, db *pgtest.DB, names ...string) *fixture {
	t.Helper()
	f := &fixture{DB: db, pool: db.Pool(t), registry: prometheus.NewRegistry()}
	f.metrics = NewMetrics(f.registry)
	for _, name := range names {
		if err := table.Init(t.Context(), f.Connect(t), table.DDLOptions{Table: name}); err != nil {
			t.Fatal(err)
		}
		f.resolve(t, table.Spec{Table: name})
	}
	return f
}

func (f *fixture) resolve(t *testing.T, spec table.Spec) *table.Outbox {
	t.Helper()
	o, err := table.Resolve(t.Context(), f.pool, int32(len(f.tables)), spec)
	if err != nil {
		t.Fatal(err)
	}
	f.tables = append(f.tables, o)
	return o
}

// insert adds n rows to the table outbox and returns them as the stream would.
func (f *fixture) insert(t *testing.T, n int) []*event.Event {
	t.Helper()
	return f.events(t, pgtest.All[int64](t, f.DB, fmt.Sprintf(
		`INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', '1' FROM generate_series(1, %d) RETURNING id`, n))...)
}

// events are rows of the table outbox as the poll would bring them.
func (f *fixture) events(t *testing.T, ids ...int64) []*event.Event {
	t.Helper()
	all := events(ids...)
	for i, m := range pgtest.All[[16]byte](t, f.DB, `SELECT message_id FROM unnest($1::bigint[]) WITH ORDINALITY AS f (id, n) JOIN outbox USING (id) ORDER BY n`, ids) {
		all[i].MessageID = m
	}
	return all
}

func events(ids ...int64) []*event.Event {
	all := make([]*event.Event, len(ids))
	for i, id := range ids {
		all[i] = &event.Event{ID: event.IntID(0, id), Topic: "t", Key: "k", HasKey: true, Path: event.Poll}
	}
	return all
}

// running is a Lifecycle that runs, with what it has reported.
type running struct {
	*Lifecycle
	stop func()

	mu      sync.Mutex
	settled map[event.RowID][]event.Settled
	calls   int
}

func (f *fixture) run(t *testing.T, cfg Config, alerter *Alerter) *running {
	t.Helper()
	r := &running{settled: map[event.RowID][]event.Settled{}}
	r.Lifecycle = New(cfg, f.pool, f.tables, r.onSettled, f.metrics, slog.New(slog.DiscardHandler), alerter)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) onSettled(settled []event.Settled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, s := range settled {
		r.settled[s.ID] = append(r.settled[s.ID], s)
	}
}

func (r *running) state(e *event.Event) (event.Settled, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.settled[e.ID]
	if len(all) == 0 {
		return event.Settled{}, false
	}
	return all[len(all)-1], true
}

func (r *running) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, all := range r.settled {
		n += len(all)
	}
	return n
}

// want drains and fails the test unless each event was reported once, with the state.
func (r *running) want(t *testing.T, state event.State, events ...*event.Event) {
	t.Helper()
	r.drain(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		all := r.settled[e.ID]
		if len(all) != 1 || all[0].State != state {
			t.Errorf("row %s was reported as %+v, want state %d once", e.ID, all, state)
		}
	}
}

func (r *running) drain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Drain(ctx); err != nil {
		t.Fatal(err)
	}
}

// ids of the table outbox with this status.
func (f *fixture) ids(t *testing.T, status string) []int64 {
	t.Helper()
	return pgtest.All[int64](t, f.DB, `SELECT id FROM outbox WHERE status = $1 ORDER BY id`, status)
}

func (f *fixture) wantIDs(t *testing.T, status string, want ...int64) {
	t.Helper()
	if got := f.ids(t, status); !slices.Equal(got, want) {
		t.Errorf("%s are %v, want %v", status, got, want)
	}
}

// metric is the sum of a metric's series (of a histogram, its count), of all of them or of those with a label's value.
func (f *fixture) metric(t *testing.T, name string, label ...string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "cdc_relay_"+name {
			continue
		}
		sum := 0.0
		for _, m := range family.GetMetric() {
			if len(label) > 0 && m.GetLabel()[0].GetValue() != label[0] {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

var (
	errRetryable = &event.Error{Class: event.Retryable, Reason: "timeout", Err: errors.New("no answer")}
	errPermanent = &event.Error{Class: event.Permanent, Reason: "message_too_large", Err: errors.New("too large")}
)
