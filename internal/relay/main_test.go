package relay

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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/replication"
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

const patience = 40 * time.Second

// fixture is a database with outbox tables, and a broker.
type fixture struct {
	*pgtest.DB
	t      *testing.T
	tables []*table.Outbox
	broker broker
}

func newFixture(t *testing.T, names ...string) *fixture {
	t.Helper()
	return fixtureOf(t, pgtest.Database(t), names...)
}

func fixtureOf(t *testing.T, db *pgtest.DB, names ...string) *fixture {
	t.Helper()
	f := &fixture{DB: db, t: t}
	if len(names) == 0 {
		names = []string{"outbox"}
	}
	conn := db.Connect(t)
	for i, name := range names {
		if err := table.Init(t.Context(), conn, table.DDLOptions{Table: name}); err != nil {
			t.Fatal(err)
		}
		o, err := table.Resolve(t.Context(), conn, int32(i), table.Spec{Table: name})
		if err != nil {
			t.Fatal(err)
		}
		f.tables = append(f.tables, o)
	}
	return f
}

// insert commits rows of one key, and returns how many PENDING ones there are.
func (f *fixture) insert(n int) {
	f.t.Helper()
	f.Exec(f.t, `INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', to_json(i) FROM generate_series(1, $1::int) i`, n)
}

func (f *fixture) count(status string) int {
	f.t.Helper()
	return pgtest.One[int](f.t, f.DB, `SELECT count(*) FROM outbox WHERE status = $1`, status)
}

// awaitPublished waits until all rows, n of them, are PUBLISHED.
func (f *fixture) awaitPublished(n int) {
	f.t.Helper()
	pgtest.Eventually(f.t, patience, fmt.Sprintf("%d PUBLISHED rows", n), func() error {
		pending, published := f.count(table.Pending), f.count(table.Published)
		if pending == 0 && published == n {
			return nil
		}
		return fmt.Errorf("%d are PUBLISHED, %d PENDING", published, pending)
	})
}

// instance is a relay that runs.
type instance struct {
	*Relay
	t        *testing.T
	name     string
	registry *prometheus.Registry
	log      *logText
	done     chan struct{}
	err      error // of Run; read it when done is closed
	cancel   context.CancelFunc
}

// setup is what differs between instances.
type setup struct {
	dsn    string
	tables []*table.Outbox
	config func(*Config)
}

func (f *fixture) start(name string, s setup) *instance {
	f.t.Helper()
	if s.dsn == "" {
		s.dsn = f.DSN
	}
	if s.tables == nil {
		s.tables = f.tables
	}
	cfg := Config{
		DirectDSN: s.dsn, Stream: true,
		Replication: replication.Config{DSN: s.dsn, Slot: f.Slot, Publication: f.Publication, Create: true},
		Dispatch:    dispatch.Config{Lanes: 4, Interval: 300 * time.Millisecond, SettleDelay: 50 * time.Millisecond},
		Lifecycle:   lifecycle.Config{Retention: time.Hour},
		StopTimeout: 20 * time.Second,
		SampleEvery: 500 * time.Millisecond,
	}
	if s.config != nil {
		s.config(&cfg)
	}
	i := &instance{t: f.t, name: name, registry: prometheus.NewRegistry(), log: &logText{}, done: make(chan struct{})}
	logger := slog.New(slog.NewTextHandler(i.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	i.Relay = New(cfg, newPool(f.t, s.dsn), s.tables, client{&f.broker, name}, nil, NewMetrics(i.registry, 10), logger)
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() {
		defer close(i.done)
		i.err = i.Run(ctx)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-i.done
		if f.t.Failed() {
			f.t.Logf("log of %s:\n%s", name, i.log)
		}
	})
	return i
}

// newPool is a small pool that doesn't wait for servers that are away.
func newPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// wait waits until Run has returned, and returns its error.
func (i *instance) wait() error {
	i.t.Helper()
	select {
	case <-i.done:
		return i.err
	case <-time.After(patience):
		i.t.Fatalf("%s does not stop\n%s", i.name, i.log)
		return nil
	}
}

func (i *instance) stop() error {
	i.t.Helper()
	i.cancel()
	return i.wait()
}

func (i *instance) await(what string, cond func(Status) bool) Status {
	i.t.Helper()
	var s Status
	pgtest.Eventually(i.t, patience, i.name+" to be "+what, func() error {
		if s = i.Status(); cond(s) {
			return nil
		}
		return fmt.Errorf("reason %q, health %+v, mode %s", s.Reason, s.Health, s.Dispatch.Mode)
	})
	return s
}

func (i *instance) awaitLeader() Status {
	i.t.Helper()
	return i.await("active", func(s Status) bool { return s.Leader })
}

func (i *instance) awaitLive() Status {
	i.t.Helper()
	return i.await("LIVE", func(s Status) bool { return s.Leader && s.Dispatch.Mode == dispatch.Live })
}

// awaitStandby waits until the instance stands by, because of something with this text.
func (i *instance) awaitStandby(reason string) Status {
	i.t.Helper()
	return i.await("standing by: "+reason, func(s Status) bool { return !s.Leader && strings.Contains(s.Reason, reason) })
}

// metric is the sum of a gauge's or counter's series with this value of their label, or of all.
func (i *instance) metric(name string, label ...string) float64 {
	i.t.Helper()
	families, err := i.registry.Gather()
	if err != nil {
		i.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "cdc_relay_"+name {
			continue
		}
		sum := 0.0
		for _, m := range family.GetMetric() {
			if len(label) == 0 || m.GetLabel()[0].GetValue() == label[0] {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return sum
	}
	i.t.Fatalf("there is no metric %s", name)
	return 0
}

// terminateLockSessions ends the sessions that hold the lock of a table, and returns how many there were.
func (f *fixture) terminateLockSessions() int {
	f.t.Helper()
	return pgtest.One[int](f.t, f.DB, `SELECT count(pg_terminate_backend(pid)) FROM pg_locks
		WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND granted`, uint32(lockClass), f.tables[0].OID)
}

// logText is what was logged.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String implements fmt.Stringer.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// lines are those with all of the words.
func (l *logText) lines(words ...string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}
