package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func (f *fixture) purger(cfg Config) *Purger {
	return NewPurger(cfg, f.pool, f.tables, f.metrics, slog.New(slog.DiscardHandler))
}

func purgeAll(t testing.TB, p *Purger, dryRun bool) int64 {
	t.Helper()
	n, err := p.Purge(t.Context(), dryRun, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPurgeDeletesExactlyWhatIsPublishedForLongerThanItsRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	hours := func(max int) *rapid.Generator[int] { return rapid.IntRange(0, max) }
	rapid.Check(t, func(rt *rapid.T) {
		f.Exec(t, `TRUNCATE outbox RESTART IDENTITY`)
		retention, deadRetention := hours(5).Draw(rt, "retention"), hours(5).Draw(rt, "dead retention")
		var values []string
		var kept []int64
		var due int64
		rows := rapid.Int64Range(0, 40).Draw(rt, "rows")
		for id := int64(1); id <= rows; id++ {
			status := rapid.SampledFrom([]string{"PENDING", "PUBLISHED", "DEAD"}).Draw(rt, "status")
			created, ended := hours(10).Draw(rt, "created"), hours(10).Draw(rt, "ended")
			published := "NULL"
			if status == "PUBLISHED" {
				published = fmt.Sprintf("now() - interval '%d hours 30 minutes'", ended)
			}
			values = append(values, fmt.Sprintf(`('t', '1', '%s', now() - interval '%d hours', %s, now() - interval '%d hours 30 minutes')`,
				status, created, published, ended))
			if status == "PUBLISHED" && ended >= retention || status == "DEAD" && deadRetention > 0 && ended >= deadRetention {
				due++
			} else {
				kept = append(kept, id)
			}
		}
		if len(values) > 0 {
			f.Exec(t, `INSERT INTO outbox (topic, payload, status, created_at, published_at, next_attempt_at) VALUES `+strings.Join(values, ", "))
		}
		p := f.purger(Config{
			Retention: time.Duration(retention) * time.Hour, DeadRetention: time.Duration(deadRetention) * time.Hour,
			PurgeBatch: rapid.IntRange(1, 10).Draw(rt, "batch"),
		})
		if n := purgeAll(t, p, true); n != due {
			rt.Fatalf("a dry run finds %d of %d rows", n, due)
		}
		if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`); n != len(values) {
			rt.Fatalf("a dry run deletes rows")
		}
		if n := purgeAll(t, p, false); n != due {
			rt.Fatalf("purged %d of %d rows", n, due)
		}
		if got := pgtest.All[int64](t, f.DB, `SELECT id FROM outbox ORDER BY id`); !slices.Equal(got, kept) {
			rt.Fatalf("kept %v, want %v", got, kept)
		}
	})
}

func TestCase33_RowOfATransactionOlderThanTheRetentionIsNotPurgedUnpublished(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	// It began two days ago and is old when it becomes visible; so is the row, by its created_at.
	_, tx := f.commitLate(t)
	if _, err := tx.Exec(t.Context(), `UPDATE outbox SET created_at = now() - interval '2 days', next_attempt_at = now() - interval '2 days'`); err != nil {
		t.Fatal(err)
	}
	f.insert(t, 3)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED', published_at = now() - interval '25 hours', created_at = now() - interval '2 days' WHERE id IN (2, 3)`)
	p := f.purger(Config{Retention: 24 * time.Hour, DeadRetention: 24 * time.Hour})
	if n := purgeAll(t, p, false); n != 2 {
		t.Errorf("purged %d rows", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := purgeAll(t, p, false); n != 0 {
		t.Errorf("purged %d rows that were never published", n)
	}
	f.wantIDs(t, "PENDING", 1, 4)
	// Published, it is kept for its whole retention, which began only now.
	r := f.run(t, Config{Retention: 24 * time.Hour}, nil)
	late := f.events(t, 1)
	r.Mark(late)
	r.want(t, event.Published, late...)
	if n := purgeAll(t, p, false); n != 0 {
		t.Errorf("purged %d rows that were published just now", n)
	}
}

// published adds n rows that were created and published so long ago.
func (f *fixture) published(t *testing.T, n int, ago string) {
	t.Helper()
	f.Exec(t, fmt.Sprintf(`INSERT INTO outbox (topic, payload, status, created_at, published_at)
		SELECT 't', '1', 'PUBLISHED', now() - interval '%[2]s', now() - interval '%[2]s' FROM generate_series(1, %[1]d)`, n, ago))
}

func sweepOnce(t *testing.T, p *Purger, whole bool) sweep {
	t.Helper()
	s := sweep{whole: whole}
	if err := p.sweep(t.Context(), p.tables[0], &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestG8_SweepsReadOnlyWhatMayBeDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.published(t, 50, "2 hours")
	f.insert(t, 5) // PENDING, in between
	f.Exec(t, `UPDATE outbox SET created_at = now() - interval '2 hours' WHERE status = 'PENDING'`)
	f.published(t, 50, "40 minutes")
	f.published(t, 1000, "1 minute")
	p := f.purger(Config{Retention: time.Hour, PurgeBatch: 20})
	if s := sweepOnce(t, p, true); s.purged != 50 || s.looked > 100 {
		t.Errorf("the first sweep purged %d of %d rows it looked at", s.purged, s.looked)
	}
	if s := sweepOnce(t, p, false); s.purged != 0 || s.looked > 20 {
		t.Errorf("the second sweep looked at %d rows", s.looked)
	}
	f.Exec(t, `UPDATE outbox SET created_at = created_at - interval '30 minutes', published_at = published_at - interval '30 minutes'`)
	if s := sweepOnce(t, p, false); s.purged != 50 || s.looked > 100 {
		t.Errorf("the third sweep purged %d of %d rows it looked at", s.purged, s.looked)
	}
	// A row that was left behind, published late, is found by a whole sweep; by purgeOnce when the hour is over.
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED', published_at = now() - interval '61 minutes' WHERE status = 'PENDING'`)
	now := time.Now()
	p.now = func() time.Time { return now }
	p.tables[0].whole = now
	purgeOnce := func() int {
		t.Helper()
		before := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`)
		if err := p.purgeOnce(t.Context(), p.tables[0]); err != nil {
			t.Fatal(err)
		}
		return before - pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`)
	}
	if n := purgeOnce(); n != 0 {
		t.Errorf("a sweep from the cursor purged %d rows", n)
	}
	now = now.Add(wholeEvery)
	if n := purgeOnce(); n != 5 {
		t.Errorf("a whole sweep purged %d rows", n)
	}
}

func TestRowWithADateInTheFutureDoesNotEndASweep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, 1)
	f.Exec(t, `UPDATE outbox SET created_at = 'infinity'`)
	f.published(t, 100, "2 hours")
	p := f.purger(Config{Retention: time.Hour, PurgeBatch: 10})
	if s := sweepOnce(t, p, true); s.purged != 100 {
		t.Errorf("purged %d rows", s.purged)
	}
}

func TestUUIDTablesAreSweptToTheirEndInTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text, key text, payload text,
		status text DEFAULT 'PENDING', created_at timestamptz DEFAULT now())`)
	f.resolve(t, table.Spec{Table: "outbox"})
	f.Exec(t, `INSERT INTO outbox (topic, status, created_at) SELECT 't', CASE WHEN g % 3 = 0 THEN 'PUBLISHED' ELSE 'PENDING' END,
		now() - CASE WHEN g % 2 = 0 THEN interval '2 hours' ELSE interval '0' END FROM generate_series(1, 600) g`)
	p := f.purger(Config{Retention: time.Hour, PurgeBatch: 2})
	var n int64
	for range 4 { // 200 chunks of 2 rows each
		n += sweepOnce(t, p, false).purged
	}
	if n != 100 {
		t.Errorf("purged %d of 100 rows", n)
	}
	if left := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`); left != 500 {
		t.Errorf("%d rows are left", left)
	}
}

func TestTableWithoutTimesIsNotPurged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload text, status text);
		INSERT INTO outbox VALUES (1, 't', 'k', 'p', 'PUBLISHED'), (2, 't', 'k', 'p', 'DEAD')`)
	f.resolve(t, table.Spec{Table: "outbox"})
	if n := purgeAll(t, f.purger(Config{DeadRetention: time.Nanosecond}), false); n != 0 {
		t.Errorf("purged %d rows", n)
	}
}

func TestPurgePassesOverRowsThatSomebodyHasLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.published(t, 10, "2 hours")
	tx, err := f.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE outbox SET status = 'PENDING' WHERE id = 5`); err != nil {
		t.Fatal(err)
	}
	p := f.purger(Config{Retention: time.Hour})
	if n := purgeAll(t, p, false); n != 9 {
		t.Errorf("purged %d rows", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := purgeAll(t, p, false); n != 0 {
		t.Errorf("purged %d rows that became PENDING", n)
	}
	f.wantIDs(t, "PENDING", 5)
}

func TestPurgeTellsItsProgress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.published(t, 25, "2 hours")
	var seen []PurgeProgress
	n, err := f.purger(Config{Retention: time.Hour, PurgeBatch: 10}).Purge(t.Context(), false, func(p PurgeProgress) { seen = append(seen, p) })
	if err != nil || n != 25 {
		t.Fatalf("%d, %v", n, err)
	}
	want := []PurgeProgress{{"public.outbox", 10, 10}, {"public.outbox", 20, 20}, {"public.outbox", 25, 25}}
	if !slices.Equal(seen, want) {
		t.Errorf("got %v", seen)
	}
	if n := f.metric(t, "purged_rows_total"); n != 25 {
		t.Errorf("purged_rows_total is %v", n)
	}
}

func TestRunPurgesEachInterval(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.published(t, 5, "2 hours")
	f.run(t, Config{Retention: time.Hour, PurgeInterval: 10 * time.Millisecond}, nil)
	gone := func() bool { return pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`) == 0 }
	pgtest.Eventually(t, patience, "the first are purged", gone)
	f.published(t, 5, "2 hours")
	pgtest.Eventually(t, patience, "the others are purged", gone)
}

func TestG1_PurgeNeverDeletesARowThatBecomesPendingAtThatMoment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.published(t, 5, "2 hours")
	// A policy holds the purge up while it reads, after its snapshot was taken and before it locks what it has chosen.
	role := f.Name + "_purger"
	f.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN; GRANT SELECT, UPDATE, DELETE ON outbox TO %[1]s;
		CREATE FUNCTION hold() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_advisory_lock_shared(1); PERFORM pg_advisory_unlock_shared(1); RETURN true; END $$;
		ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY hold ON outbox USING (hold())`, role))
	t.Cleanup(func() { f.Exec(t, fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %[1]s`, role)) })
	keeper := f.Connect(t)
	if _, err := keeper.Exec(t.Context(), `SELECT pg_advisory_lock(1)`); err != nil {
		t.Fatal(err)
	}
	p := NewPurger(Config{Retention: time.Hour}, pgtest.NewPool(t, f.DSNAs(role)), f.tables, f.metrics, slog.New(slog.DiscardHandler))
	purged := make(chan int64, 1)
	go func() {
		n, err := p.Purge(context.Background(), false, nil)
		if err != nil {
			t.Error(err)
		}
		purged <- n
	}()
	pgtest.Eventually(t, patience, "the purge is held up", func() bool {
		return pgtest.One[bool](t, f.DB, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
	f.Exec(t, `UPDATE outbox SET status = 'PENDING' WHERE id = 3`)
	if _, err := keeper.Exec(t.Context(), `SELECT pg_advisory_unlock(1)`); err != nil {
		t.Fatal(err)
	}
	if n := <-purged; n != 4 {
		t.Errorf("purged %d rows", n)
	}
	f.wantIDs(t, "PENDING", 3)
}
