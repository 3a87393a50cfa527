package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestMarksAreWrittenInBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "other")
	all := f.insert(t, 2500)
	f.Exec(t, `INSERT INTO other (topic, payload, message_id) VALUES ('t', '1', '00000000-0000-0000-0000-000000000000')`)
	all = append(all, &event.Event{ID: event.IntID(1, 1)})
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Mark(all)
	r.want(t, event.Published, all...)
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND published_at BETWEEN created_at AND now()`); n != 2500 {
		t.Errorf("%d rows are marked", n)
	}
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM other WHERE status = 'PUBLISHED'`); n != 1 {
		t.Errorf("%d rows of the other table are marked", n)
	}
	if n := f.metric(t, "mark_seconds"); n != 4 {
		t.Errorf("%v statements", n)
	}
	if n := f.metric(t, "marked_rows_total"); n != 2501 {
		t.Errorf("marked_rows_total is %v", n)
	}
}

func TestWithoutRetentionPublishedRowsAreDeletedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 10)
	r := f.run(t, Config{}, nil)
	r.Mark(all[:9])
	r.want(t, event.Published, all[:9]...)
	if left := pgtest.All[int64](t, f.DB, `SELECT id FROM outbox`); !slices.Equal(left, []int64{10}) {
		t.Errorf("left: %v", left)
	}
}

func TestUUIDAndIntegerRowsAreMarkedAndFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TYPE state AS ENUM ('new', 'sent', 'broken');
		CREATE TABLE by_uuid (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text, key text, payload text, "the status" state DEFAULT 'new',
			attempts smallint, created_at timestamp DEFAULT now(), published_at timestamp, last_error varchar(2000), next_attempt_at timestamptz);
		INSERT INTO by_uuid (topic) SELECT 't' FROM generate_series(1, 3);
		CREATE TABLE by_int (id integer PRIMARY KEY, topic text, key text, payload text, status text DEFAULT 'PENDING');
		INSERT INTO by_int (id, topic) VALUES (-1, 't'), (2, 't')`)
	u := f.resolve(t, table.Spec{
		Table: "by_uuid", Columns: map[table.Column]string{table.Status: "the status"},
		Statuses: map[string]string{table.Pending: "new", table.Published: "sent", table.Dead: "broken"},
	})
	f.resolve(t, table.Spec{Table: "by_int"})
	var all []*event.Event
	for _, text := range pgtest.All[string](t, f.DB, `SELECT id::text FROM by_uuid ORDER BY id DESC`) {
		id, err := u.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &event.Event{ID: id})
	}
	all = append(all, &event.Event{ID: event.IntID(1, -1)}, &event.Event{ID: event.IntID(1, 2)})
	r := f.run(t, Config{Retention: time.Hour, Retry: Retry{Initial: time.Hour, Max: time.Hour}}, nil)
	r.Mark([]*event.Event{all[0], all[3]})
	r.Fail(all[1], errRetryable)
	r.Fail(all[2], errPermanent)
	r.Fail(all[4], errPermanent)
	r.want(t, event.Published, all[0], all[3])
	r.want(t, event.Waiting, all[1])
	r.want(t, event.Dead, all[2], all[4])
	got := pgtest.All[string](t, f.DB, `SELECT concat_ws(' ', "the status", attempts, last_error, published_at IS NOT NULL,
		next_attempt_at > now() + interval '59 minutes') FROM by_uuid ORDER BY id DESC`)
	want := []string{"sent t", "new 1 timeout: no answer f t", "broken 1 message_too_large: too large f f"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// commitLate inserts a row in a transaction that stays open; the event is what the stream would bring of it.
func (f *fixture) commitLate(t *testing.T) (*event.Event, pgx.Tx) {
	t.Helper()
	tx, err := f.Connect(t).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	e := &event.Event{Path: event.WAL}
	var id int64
	if err := tx.QueryRow(t.Context(), `INSERT INTO outbox (topic, payload) VALUES ('t', '1')
		RETURNING id, (pg_current_xact_id()::text::bigint & 4294967295), message_id`).Scan(&id, &e.Xid, &e.MessageID); err != nil {
		t.Fatal(err)
	}
	e.ID = event.IntID(0, id)
	return e, tx
}

func TestMarkThatFindsNoRowIsEarlyAndTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	early, tx := f.commitLate(t)
	late := f.insert(t, 1)[0]
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Mark([]*event.Event{early, late})
	pgtest.Eventually(t, patience, "the mark is tried again", func() bool { return f.metric(t, "mark_retries_total") >= 3 })
	if _, ok := r.state(early); ok {
		t.Fatal("a row was reported that no statement has named")
	}
	if s, ok := r.state(late); !ok || s.State != event.Published {
		t.Error("the visible row had to wait for the other")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want(t, event.Published, early, late)
	f.wantIDs(t, "PUBLISHED", 1, 2)
}

func TestCase14_MarkOfARowBehindAStalledStandbyIsTriedUntilItSticks(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := fixtureOf(t, c.Database(t), "outbox")
	failing := f.insert(t, 1)[0]
	f.Exec(t, `DELETE FROM outbox`)
	if err := c.Set(t.Context(), "synchronous_standby_names", "ghost"); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, patience, "the setting is in force", func() bool {
		return pgtest.One[string](t, f.DB, `SHOW synchronous_standby_names`) == "ghost"
	})
	// Its commit record is written, and the stream would bring the rows; no other session sees them.
	e, tx := f.commitLate(t)
	failing.Path, failing.Xid = event.WAL, e.Xid
	if _, err := tx.Exec(t.Context(), `INSERT INTO outbox (id, topic, payload, message_id) VALUES (1, 't', '1', $1)`, failing.MessageID); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	go func() { committed <- tx.Commit(context.Background()) }()
	pgtest.Eventually(t, patience, "the commit waits for the standby", func() bool {
		return pgtest.One[bool](t, f.DB, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	})

	r := f.run(t, Config{Retention: time.Hour, Retry: Retry{Initial: time.Hour}}, nil)
	r.Mark([]*event.Event{e})
	r.Fail(failing, errRetryable)
	// Seven rounds take longer than it takes until the database is asked what became of them.
	pgtest.Eventually(t, patience, "mark and failure are tried again", func() bool { return f.metric(t, "mark_retries_total") >= 14 })
	if n := r.count(); n != 0 {
		t.Fatalf("%d rows were reported", n)
	}
	if err := c.Set(t.Context(), "synchronous_standby_names", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	r.want(t, event.Published, e)
	r.want(t, event.Waiting, failing)
	f.wantIDs(t, "PUBLISHED", e.ID.Int())
}

func TestCase43_RowsThatSomebodyTookAwayInFlightAreGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 6)
	rolledBack, tx := f.commitLate(t) // as after a failover to a standby that had not received the commit
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	open, tx := f.commitLate(t)
	streamed := *all[3]
	streamed.Path, streamed.Xid = event.WAL, 3
	f.Exec(t, `DELETE FROM outbox WHERE id IN (1, 4)`)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD' WHERE id = 2`)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id = 5`)
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Mark([]*event.Event{all[0], all[1], all[2], &streamed, rolledBack, open})
	r.Fail(all[4], errRetryable)
	r.Fail(all[5], errPermanent)
	pgtest.Eventually(t, patience, "what is gone is noticed", func() bool { return r.count() == 7 })
	if _, ok := r.state(open); ok {
		t.Error("a row whose transaction is open was given up")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want(t, event.Gone, all[0], all[1], &streamed, rolledBack, all[4])
	r.want(t, event.Published, all[2], open)
	r.want(t, event.Dead, all[5])
	if n := f.metric(t, "gone_rows_total"); n != 5 {
		t.Errorf("gone_rows_total is %v", n)
	}
}

// A standby that hadn't received the last rows gives their numbers again once it is promoted.
func TestG1_AnOutcomeIsNotWrittenIntoAnotherRowThatGotTheNumber(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{0, time.Hour} {
		f := newFixture(t, "outbox")
		all := f.insert(t, 5)
		all[3].Path, all[3].Xid = event.WAL, pgtest.One[uint32](t, f.DB, `SELECT ((pg_current_xact_id()::text::bigint + 1000) & 4294967295)::bigint`)
		f.Exec(t, `UPDATE outbox SET message_id = gen_random_uuid() WHERE id < 5`)
		r := f.run(t, Config{Retention: retention}, nil)
		r.Mark([]*event.Event{all[0], all[3], all[4]})
		r.Fail(all[1], errRetryable)
		r.Fail(all[2], errPermanent)
		r.want(t, event.Gone, all[:4]...)
		r.want(t, event.Published, all[4])
		f.wantIDs(t, "PENDING", 1, 2, 3, 4)
		if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox WHERE attempts > 0`); n != 0 {
			t.Errorf("%d rows have an attempt of another", n)
		}
	}
}

func TestRowsWithoutAMessageIDAreToldByTheirID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, message_id uuid, topic text, key text, payload text, status text DEFAULT 'PENDING');
		INSERT INTO outbox (id, topic) SELECT i, 't' FROM generate_series(1, 3) i`)
	f.resolve(t, table.Spec{Table: "outbox"})
	r := f.run(t, Config{Retention: time.Hour}, nil)
	all := events(1, 2, 3)
	r.Mark(all[:1])
	r.Fail(all[1], errRetryable)
	r.Fail(all[2], errPermanent)
	r.want(t, event.Published, all[0])
	r.want(t, event.Waiting, all[1])
	r.want(t, event.Dead, all[2])
}

func TestTransactionIDsAreWidenedAcrossTheEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	sql := func(xmax string, xid uint32) string {
		return pgtest.One[string](t, f.DB, fmt.Sprintf(`SELECT (%s)::text FROM (SELECT %s::bigint AS xmax, %d::bigint AS xid) AS x`,
			widened("x.xid", "x.xmax"), xmax, xid))
	}
	for _, c := range []struct {
		xmax string
		xid  uint32
		want string
	}{
		{"1000", 999, "999"},
		{"1000", 1001, "1001"},                   // in progress, and above the snapshot's xmax
		{"4294967300", 4294967290, "4294967290"}, // of the epoch before
		{"4294967300", 5, "4294967301"},
		{"4294967290", 7, "4294967303"}, // of the epoch to come
		{"8589934600", 4294967295, "8589934591"},
		{"10", 4294967290, "3"}, // can't be: before the first
	} {
		if got := sql(c.xmax, c.xid); got != c.want {
			t.Errorf("xid %d near %s is %s, want %s", c.xid, c.xmax, got, c.want)
		}
	}
}

func TestMarksOutliveARestartOfPostgres(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := fixtureOf(t, c.Database(t), "outbox")
	all := f.insert(t, 3000)
	f.Exec(t, `CHECKPOINT`)
	r := f.run(t, Config{Retention: time.Hour, MarkBatch: 10}, nil)
	r.Mark(all[:1500])
	for _, e := range all[1500:1600] {
		r.Fail(e, errPermanent)
	}
	pgtest.Eventually(t, patience, "some are marked", func() bool { return r.count() > 100 })
	if err := c.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	r.Mark(all[1600:])
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want(t, event.Published, all[:1500]...)
	r.want(t, event.Published, all[1600:]...)
	r.want(t, event.Dead, all[1500:1600]...)
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`); n != 2900 {
		t.Errorf("%d rows are marked", n)
	}
	if n := f.metric(t, "gone_rows_total"); n != 0 {
		t.Errorf("%v rows are called gone that we wrote ourselves", n)
	}
}

func TestOutcomeWhoseCommitWasNotAnsweredIsNotCalledGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 3)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id = 1`)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD' WHERE id = 2`)
	r := f.run(t, Config{Retention: time.Hour}, nil)
	// As putBack leaves them when the connection was lost after the statement was sent.
	r.hand(outcome{event: all[0], unclear: true}, outcome{event: all[1], err: errPermanent, dies: true, unclear: true},
		outcome{event: all[2], unclear: true})
	r.want(t, event.Published, all[0], all[2])
	r.want(t, event.Dead, all[1])
	if f.metric(t, "gone_rows_total") != 0 || f.metric(t, "events_dead_total", "message_too_large") != 1 {
		t.Error("the counters say something else")
	}
}

func TestRowThatCannotBeWrittenDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 64)
	f.Exec(t, `CREATE SEQUENCE tries; -- what is drawn from it stays drawn
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries'); RAISE 'not this row'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW WHEN (old.id = 17) EXECUTE FUNCTION refuse()`)
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Mark(all)
	pgtest.Eventually(t, patience, "the others are marked", func() bool { return r.count() == 63 })
	f.wantIDs(t, "PENDING", 17)
	if n := pgtest.One[int](t, f.DB, `SELECT last_value FROM tries`); n > 20 {
		t.Errorf("the row was tried %d times without a pause", n)
	}
	f.Exec(t, `DROP TRIGGER refuse ON outbox`)
	r.want(t, event.Published, all...)
}

func TestOneTableInTroubleDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "other")
	e := f.insert(t, 1)[0]
	f.Exec(t, `INSERT INTO other (topic, payload, message_id) VALUES ('t', '1', '00000000-0000-0000-0000-000000000000')`)
	f.Exec(t, `ALTER TABLE outbox RENAME TO moved`)
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Mark([]*event.Event{e})
	r.Mark([]*event.Event{{ID: event.IntID(1, 1)}})
	pgtest.Eventually(t, patience, "the other table's row is marked", func() bool { return r.count() == 1 })
	f.Exec(t, `ALTER TABLE moved RENAME TO outbox`)
	r.want(t, event.Published, e)
}

func TestG10_StopWritesWhatWasHandedIn(t *testing.T) {
	f := newFixture(t, "outbox")
	all := f.insert(t, 3000)
	opened := goleak.IgnoreCurrent()
	r := f.run(t, Config{Retention: time.Hour, MarkInterval: time.Hour}, nil)
	r.Mark(all[:1])
	r.drain(t) // the next would have to wait for the interval
	r.Mark(all[1:500])
	r.stop()
	if n := r.count(); n != 500 {
		t.Errorf("%d rows were reported", n)
	}
	f.pool.Reset()
	goleak.VerifyNone(t, opened, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}

func TestG10_StopEndsWithinItsTimeoutWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := fixtureOf(t, c.Database(t), "outbox")
	all := f.insert(t, 10)
	if err := c.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	r := f.run(t, Config{Retention: time.Hour, StopTimeout: 300 * time.Millisecond}, nil)
	r.Mark(all)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Drain(ctx); err == nil {
		t.Error("drained without a database")
	}
	r.stop() // blocks for ever unless the timeout works
	if n := r.Unsettled(); n != 10 {
		t.Errorf("%d are unsettled", n)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestGiveUpEndsTheWaitForRowsThatAreNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	r := f.run(t, Config{Retention: time.Hour, StopTimeout: time.Hour}, nil)
	missing, _ := f.commitLate(t)
	r.Mark([]*event.Event{missing})
	r.GiveUp()
	r.stop()
	if n := r.Unsettled(); n != 1 {
		t.Errorf("%d are unsettled", n)
	}
}
