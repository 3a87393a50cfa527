package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// The lock is given back last: when another instance begins, every outcome is written down.
func TestG10_StopWaitsForWhatIsInFlightMarksItAndOnlyThenGivesTheLockBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{})
	a.awaitLive()
	b := f.start("b", setup{})
	b.awaitStandby("another instance is active")
	release := f.broker.holdCalls()
	f.insert(50)
	pgtest.Eventually(t, patience, "a call of the sink", func() bool { return f.broker.heldCalls() > 0 })
	a.cancel()
	pgtest.Eventually(t, patience, "the stream to end", func() bool {
		return pgtest.One[int](t, f.DB, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, f.Slot) == 0
	})
	select {
	case <-a.done:
		t.Fatal("Run has returned while an event was with the sink")
	default:
	}
	if b.Status().Leader {
		t.Error("another instance is active while an event is with the sink")
	}
	if err := refused(t, f.DSN, "", f.tables...); !errors.Is(err, errTaken) {
		t.Errorf("the lock: %v", err)
	}
	release()
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	first, again := f.broker.delivered()
	b.awaitLive()
	f.awaitPublished(50)
	if len(first) == 0 || again != 0 {
		t.Errorf("%d rows were delivered before the end, %d again", len(first), again)
	}
	if all, again := f.broker.delivered(); len(all) != 50 || again != 0 || !slices.IsSorted(all) {
		t.Errorf("%d rows were delivered, %d of them again", len(all), again)
	}
}

func TestG10_ASinkThatNeverAnswersEndsTheStopWithErrUnsettledAndTheRowsStayPending(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{config: func(cfg *Config) { cfg.StopTimeout = 500 * time.Millisecond }})
	a.awaitLive()
	release := f.broker.holdCalls()
	defer release()
	f.insert(10)
	pgtest.Eventually(t, patience, "a call of the sink", func() bool { return f.broker.heldCalls() > 0 })
	if err := a.stop(); !errors.Is(err, dispatch.ErrUnsettled) {
		t.Errorf("Run: %v", err)
	}
	if n := f.count(table.Pending); n != 10 {
		t.Errorf("%d rows are PENDING", n)
	}
	release()
	f.start("b", setup{})
	f.awaitPublished(10)
}

// Outcomes that can't be written hold up a stop no longer than its timeout, all parts together.
func TestG10_ALockedTableHoldsUpAStopNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const timeout = 3 * time.Second
	a := f.start("a", setup{config: func(cfg *Config) {
		cfg.StopTimeout, cfg.Lifecycle.StopTimeout = timeout, time.Hour
	}})
	a.awaitLive()
	release := f.broker.holdCalls()
	f.insert(10)
	pgtest.Eventually(t, patience, "a call of the sink", func() bool { return f.broker.heldCalls() > 0 })
	tx, err := f.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE outbox IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	release()
	pgtest.Eventually(t, patience, "a mark that waits for the lock", func() bool {
		return pgtest.One[int](t, f.DB, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if err := a.stop(); !errors.Is(err, dispatch.ErrUnsettled) {
		t.Errorf("Run: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.start("b", setup{})
	f.awaitPublished(10)
}

func TestG10_AnOutageOfTheSinkDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{config: func(cfg *Config) { cfg.StopTimeout = time.Hour }})
	a.awaitLive()
	f.broker.set(func(b *broker) { b.away = true })
	f.insert(10)
	s := a.await("without a sink", func(s Status) bool { return !s.Dispatch.SinkUp })
	if len(s.Health.Reasons) != 1 || s.Health.Reasons[0] != "the sink is not available: "+errAway.Error() {
		t.Errorf("reasons: %q", s.Health.Reasons)
	}
	if err := a.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	f.broker.set(func(b *broker) { b.away = false })
	f.start("b", setup{})
	f.awaitPublished(10)
	if n := pgtest.One[int](t, f.DB, `SELECT max(attempts) FROM outbox`); n != 0 {
		t.Errorf("%d attempts were counted", n)
	}
}

func TestG10_AnInstanceThatStandsByStopsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hold(t, f.DSN, f.Slot, f.tables...)
	a := f.start("a", setup{})
	a.awaitStandby("another instance is active")
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	nowhere := f.start("nowhere", setup{dsn: "postgres://127.0.0.1:1/shop?sslmode=disable"})
	s := nowhere.awaitStandby("connection refused")
	if len(s.Health.Reasons) == 0 {
		t.Error("an instance without a database says that it is ready")
	}
	if n := len(nowhere.log.lines("level=WARN", "standing by", "connection refused")); n != 1 {
		t.Errorf("%d lines of the log tell why", n)
	}
	if err := nowhere.stop(); err != nil {
		t.Error(err)
	}
}

func TestAPartThatFailsEndsItsTermAndTellsWhy(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failed := make(chan struct{})
	p := start(func(context.Context) error { return broken }, func() { close(failed) })
	<-failed
	if err := p.stop(); !errors.Is(err, broken) {
		t.Errorf("stop: %v", err)
	}
	well := start(func(ctx context.Context) error { <-ctx.Done(); return nil }, func() { t.Error("failed was called") })
	if err := well.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// After a term has ended for any reason but a stop, the next begins.
func TestG6_TermsFollowEachOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{})
	rows := 0
	var last time.Time
	for range 3 {
		s := a.await("active again", func(s Status) bool { return s.Leader && s.LeaderSince.After(last) })
		last = s.LeaderSince
		rows += 20
		f.insert(20)
		f.awaitPublished(rows)
		f.terminateLockSessions()
	}
	a.await("active again", func(s Status) bool { return s.Leader && s.LeaderSince.After(last) })
	if n := len(a.log.lines("level=WARN", "standing by", "the lock is lost")); n != 3 {
		t.Errorf("%d lines of the log tell of the lost lock", n)
	}
	if first, again := f.broker.delivered(); len(first) != rows || again != 0 {
		t.Errorf("%d rows were delivered, %d of them again", len(first), again)
	}
}
