package fallbackpoll

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func sequence(from, to int) []string {
	all := []string{}
	for i := from; i <= to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func TestPassBringsAllPendingRowsInOrderOfID(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 25)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id IN (3, 25)`)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD' WHERE id = 11`)
	p := f.poller(t, Config{Batch: 10})
	got := pages(t, p)
	want := slices.DeleteFunc(sequence(1, 25), func(s string) bool { return s == "3" || s == "11" || s == "25" })
	if diff := cmp.Diff(want, ids(got...)); diff != "" {
		t.Error(diff)
	}
	if len(got) != 3 || len(got[0].Events) != 10 || got[0].Last || got[1].Last {
		t.Errorf("want pages of 10, 10 and 2 rows, got %d", len(got))
	}
	e := got[0].Events[0]
	if e.Topic != "t" || e.Key != "k1" || string(e.Payload) != "1" || e.Path != event.Poll || e.ReceivedAt.IsZero() || e.Lag <= 0 {
		t.Errorf("unexpected event %+v", e)
	}
}

func TestPageWithoutAPassIsEmptyAndTheLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 1)
	if page := next(t, f.poller(t, Config{})); len(page.Events) != 0 || !page.Last {
		t.Errorf("got %+v", page)
	}
	if got := pages(t, newFixture(t, "outbox").poller(t, Config{})); len(got) != 1 || !got[0].Last {
		t.Errorf("of an empty table: %+v", got)
	}
}

func TestPassBeginsAnewAfterOneWasGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 5)
	p := f.poller(t, Config{Batch: 2})
	if _, err := p.BeginPass(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	next(t, p)
	f.insert(t, "outbox", 1)
	if diff := cmp.Diff(sequence(1, 6), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}

func TestG3_RowsBeyondThePassesBoundAreLeftToTheNextPass(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 2)
	tx, ctx := f.begin(t)
	if _, err := tx.Exec(ctx, `INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', '3')`); err != nil {
		t.Fatal(err)
	}
	f.insert(t, "outbox", 2) // 4 and 5 are visible, 3 isn't
	p := f.poller(t, Config{Batch: 2})
	if _, err := p.BeginPass(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	first, second := next(t, p), next(t, p)
	if diff := cmp.Diff([]string{"1", "2", "4", "5"}, ids(first, second)); diff != "" {
		t.Fatal(diff)
	}
	// 3 becomes visible behind the cursor; its key goes on with 6, which the pass must not bring.
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', '6')`)
	if got := ids(rest(t, p)...); len(got) != 0 {
		t.Errorf("the pass went on with %v", got)
	}
	if diff := cmp.Diff(sequence(1, 6), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}

func TestG1_PassIsCompleteUnderConcurrentInserts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 500)
	writing, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-writing:
				done <- nil
				return
			default:
			}
			if _, err := f.pool.Exec(t.Context(), `INSERT INTO outbox (topic, payload) SELECT 't', '1' FROM generate_series(1, 20)`); err != nil {
				done <- err
				return
			}
		}
	}()
	p := f.poller(t, Config{Batch: 32})
	for range 5 {
		got := ids(pages(t, p)...)
		if len(got) < 500 {
			t.Fatalf("the pass brought %d rows", len(got))
		}
		// One writer: ids become visible in order, so a pass without a hole is 1..n.
		if diff := cmp.Diff(sequence(1, len(got)), got); diff != "" {
			t.Fatal(diff)
		}
	}
	close(writing)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCase29_G1_RowThatCommitsLateWithALowIDIsFoundByALaterPass(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	tx, ctx := f.begin(t)
	if _, err := tx.Exec(ctx, `INSERT INTO outbox (topic, payload) VALUES ('late', '1')`); err != nil {
		t.Fatal(err)
	}
	p := f.poller(t, Config{SlowQuery: -1}) // floors are used, as on a database that suffers
	for range 3 {
		f.insert(t, "outbox", 10)
		if got := ids(pages(t, p)...); slices.Contains(got, "1") || len(got) != 10 {
			t.Fatalf("got %v", got)
		}
		f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE status = 'PENDING'`)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}

func TestPageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.Exec(t, `INSERT INTO outbox (topic, payload) SELECT 't', to_json(repeat('x', 200000)) FROM generate_series(1, 30)`)
	f.Exec(t, `INSERT INTO outbox (topic, payload) VALUES ('t', to_json(repeat('x', 3000000)))`)
	f.insert(t, "outbox", 200)
	p := f.poller(t, Config{Batch: 100, PageBytes: 1 << 20})
	got := pages(t, p)
	if diff := cmp.Diff(sequence(1, 231), ids(got...)); diff != "" {
		t.Error(diff)
	}
	for i, page := range got {
		bytes := 0
		for _, e := range page.Events[:max(0, len(page.Events)-1)] {
			bytes += e.Size()
		}
		if bytes > 1<<20 {
			t.Errorf("page %d holds %d bytes before its last row", i, bytes)
		}
	}
	if n := len(got[0].Events); n != 6 {
		t.Errorf("the first page has %d rows", n)
	}
	if p.tables[0].reader.limit != 100 {
		t.Errorf("the limit stayed at %d after small rows", p.tables[0].reader.limit)
	}
}

func TestTablesFollowOneAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "empty", `"Other ""box"""`)
	f.insert(t, "outbox", 3)
	f.insert(t, `"Other ""box"""`, 3)
	got := pages(t, f.poller(t, Config{Batch: 2}))
	if diff := cmp.Diff([]string{"1", "2", "3", "1", "2", "3"}, ids(got...)); diff != "" {
		t.Error(diff)
	}
	last := got[len(got)-1]
	if last.Events[0].ID.Table != 2 || got[0].Events[0].ID.Table != 0 {
		t.Errorf("tables %+v, %+v", got[0].Events[0].ID, last.Events[0].ID)
	}
}

func TestUUIDRowsComeInTheOrderOfCreatedAt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, typ := range []string{"timestamptz", "timestamp"} {
		f.Exec(t, fmt.Sprintf(`CREATE TABLE by_%s (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text, key text, payload text,
			status text DEFAULT 'PENDING', created_at %[1]s DEFAULT now())`, typ))
		f.resolve(t, table.Spec{Table: "by_" + typ})
		f.Exec(t, fmt.Sprintf(`INSERT INTO by_%s (topic, payload, created_at)
			SELECT 't', g, CASE WHEN g = 50 THEN 'infinity' WHEN g = 51 THEN NULL
				ELSE timestamp '2026-10-25 00:00' + (g / 5) * interval '1 hour' + g / 5 * interval '1 microsecond' END
			FROM generate_series(1, 51) g`, typ))
	}
	// A session time zone with a repeated hour, and a date style that isn't ISO, must not matter.
	cfg, err := pgxpool.ParseConfig(f.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["timezone"] = "Europe/Berlin"
	cfg.ConnConfig.RuntimeParams["datestyle"] = "SQL, DMY"
	if f.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer f.pool.Close()

	got := pages(t, f.poller(t, Config{Batch: 4}))
	seen := map[int32][]string{}
	for _, page := range got {
		for _, e := range page.Events {
			seen[e.ID.Table] = append(seen[e.ID.Table], string(e.Payload))
		}
	}
	for i, o := range f.tables {
		want := pgtest.All[string](t, f.DB, `SELECT payload FROM `+o.Ident()+` ORDER BY created_at, id`)
		if diff := cmp.Diff(want, seen[int32(i)]); diff != "" {
			t.Errorf("%s: %s", o, diff)
		}
	}
}

func TestCase15_TimesAreTheDatabasesClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.Exec(t, `INSERT INTO outbox (topic, payload, created_at, next_attempt_at) VALUES
		('t', '1', now() - interval '1 minute', now() + interval '1 hour'),
		('t', '2', now() + interval '1 hour', now() - interval '1 second'),
		('t', '3', '-infinity', 'infinity'),
		('t', '4', '4000-01-01 BC', '200000-01-01'),
		('t', '5', 'infinity', '-infinity')`)
	p := f.poller(t, Config{})
	p.now = func() time.Time { return time.Now().Add(-10 * time.Minute) } // the relay's clock is wrong
	page := pages(t, p)[0]
	within := func(what string, got, low, high time.Duration) {
		t.Helper()
		if got < low || got > high {
			t.Errorf("%s is %v, want %v to %v", what, got, low, high)
		}
	}
	e := page.Events
	within("due in, 1", e[0].DueIn, 55*time.Minute, time.Hour)
	within("lag, 1", e[0].Lag, time.Minute, 5*time.Minute)
	within("due in, 2", e[1].DueIn, 0, 0)
	within("lag, 2", e[1].Lag, 0, 0)
	within("due in, 3", e[2].DueIn, maxDue*time.Second, maxDue*time.Second)
	within("lag, 3", e[2].Lag, maxLag*time.Second, maxLag*time.Second)
	within("due in, 4", e[3].DueIn, maxDue*time.Second, maxDue*time.Second)
	within("due in, 5", e[4].DueIn, 0, 0)
	within("lag, 5", e[4].Lag, 0, 0)
}

func TestTableWithTheLeastColumnsIsPolled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE small ("Id" integer PRIMARY KEY, topic text, key text, payload bytea, state text DEFAULT 'new')`)
	f.resolve(t, table.Spec{
		Table:    "small",
		Columns:  map[table.Column]string{table.ID: "Id", table.Status: "state"},
		Statuses: map[string]string{table.Pending: "new"},
	})
	f.Exec(t, `INSERT INTO small ("Id", topic, payload) SELECT g, 't', '\x00ff' FROM generate_series(-2, 3) g`)
	waits := map[string]time.Duration{"2": time.Minute}
	p := f.poller(t, Config{Batch: 4, DueIn: func(id event.RowID) time.Duration { return waits[id.String()] }})
	got := pages(t, p)
	if diff := cmp.Diff([]string{"-2", "-1", "0", "1", "2", "3"}, ids(got...)); diff != "" {
		t.Error(diff)
	}
	if e := got[1].Events[0]; e.DueIn != time.Minute {
		t.Errorf("row 2 is due in %v", e.DueIn)
	}
}

func TestPagesWALPositionIsBeyondItsRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 3)
	before := pgtest.One[string](t, f.DB, `SELECT pg_current_wal_insert_lsn()::text`)
	page := pages(t, f.poller(t, Config{}))[0]
	if !pgtest.One[bool](t, f.DB, `SELECT $1::text::pg_lsn >= $2::text::pg_lsn`, page.WAL.String(), before) {
		t.Errorf("position %s is before %s", page.WAL, before)
	}
}

func TestNudgeMovesTheFlushedPositionBeyondTheInsertPosition(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	at := pgtest.One[string](t, f.DB, `SELECT pg_current_wal_insert_lsn()::text`)
	if err := f.poller(t, Config{}).Nudge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !pgtest.One[bool](t, f.DB, `SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn`, at) {
		t.Error("nothing was flushed")
	}
}

func TestStatesTellPendingFromSettledAndLeaveOutWhatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "other")
	f.insert(t, "outbox", 5)
	f.insert(t, "other", 2)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id = 2`)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD' WHERE id = 3`)
	f.Exec(t, `DELETE FROM outbox WHERE id = 4`)
	f.Exec(t, `UPDATE other SET status = 'DEAD' WHERE id = 1`)
	var asked []event.RowID
	for i := range int64(7) {
		asked = append(asked, event.IntID(0, i), event.IntID(1, i))
	}
	p := f.poller(t, Config{})
	pending, settled, err := p.States(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	sorted := cmpopts.SortSlices(func(a, b event.RowID) bool { return a.Table < b.Table || a.Table == b.Table && a.Lo < b.Lo })
	if diff := cmp.Diff([]event.RowID{event.IntID(0, 1), event.IntID(0, 5), event.IntID(1, 2)}, pending, sorted); diff != "" {
		t.Errorf("pending: %s", diff)
	}
	if diff := cmp.Diff([]event.RowID{event.IntID(0, 2), event.IntID(0, 3), event.IntID(1, 1)}, settled, sorted); diff != "" {
		t.Errorf("settled: %s", diff)
	}
	if pending, settled, err := p.States(t.Context(), nil); err != nil || pending != nil || settled != nil {
		t.Errorf("of nothing: %v, %v, %v", pending, settled, err)
	}
}

func TestBeginPassTellsTheKeysThatDeadRowsBlockWhenAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.Exec(t, `INSERT INTO outbox (topic, key, status) VALUES ('t', 'a', 'DEAD'), ('t', 'a', 'DEAD'), ('t', 'b', 'PENDING'), ('t', NULL, 'DEAD')`)
	blocked, err := f.poller(t, Config{BlockOnDead: true}).BeginPass(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocked) != 1 || blocked[0].Key != "a" || !blocked[0].HasKey || blocked[0].ID.Table != 0 {
		t.Errorf("got %+v", blocked)
	}
	if blocked, err := f.poller(t, Config{}).BeginPass(t.Context(), true); err != nil || blocked != nil {
		t.Errorf("unasked: %v, %v", blocked, err)
	}
}

func TestNoPassBeginsWhenTheTableIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 3)
	p := f.poller(t, Config{Batch: 2})
	f.Exec(t, `ALTER TABLE outbox RENAME TO gone`)
	if _, err := p.BeginPass(t.Context(), false); err == nil {
		t.Error("a pass began over a table that is gone")
	}
	f.Exec(t, `ALTER TABLE gone RENAME TO outbox`)
	if diff := cmp.Diff(sequence(1, 3), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}
