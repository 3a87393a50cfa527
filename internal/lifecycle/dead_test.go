package lifecycle

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// deadFixture has ten rows, of which 1 to 6 are DEAD for so many hours.
func deadFixture(t *testing.T) (*fixture, *Dead) {
	t.Helper()
	f := newFixture(t, "outbox", "other")
	f.Exec(t, `INSERT INTO outbox (topic, key, event_type, payload, status, attempts, last_error, next_attempt_at)
		SELECT 'topic' || g % 2, nullif('k' || g % 3, 'k0'), 'type' || g % 2, to_json(g), CASE WHEN g <= 6 THEN 'DEAD' ELSE 'PENDING' END,
			g, 'Error 100% ' || g, now() - g * interval '1 hour' FROM generate_series(1, 10) g`)
	f.Exec(t, `INSERT INTO other (topic, payload, status) VALUES ('topic0', '1', 'DEAD'), ('topic0', '2', 'PUBLISHED')`)
	return f, NewDead(f.pool, f.tables)
}

func names(rows []DeadRow) []string {
	all := []string{}
	for _, r := range rows {
		all = append(all, r.Table[len("public."):]+"/"+r.ID)
	}
	return all
}

func TestDeadRowsAreListedByFilter(t *testing.T) {
	t.Parallel()
	f, d := deadFixture(t)
	k1, after := "k1", event.IntID(0, 4)
	for _, c := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all", Filter{}, []string{"outbox/1", "outbox/2", "outbox/3", "outbox/4", "outbox/5", "outbox/6", "other/1"}},
		{"limit", Filter{Limit: 2}, []string{"outbox/1", "outbox/2"}},
		{"limit and topic", Filter{Limit: 2, Topic: "topic0"}, []string{"outbox/2", "outbox/4"}},
		{"page", Filter{Limit: 2, After: &after}, []string{"outbox/5", "outbox/6"}},
		{"table", Filter{Table: "other"}, []string{"other/1"}},
		{"table and schema", Filter{Table: "public.other"}, []string{"other/1"}},
		{"topic", Filter{Topic: "topic0"}, []string{"outbox/2", "outbox/4", "outbox/6", "other/1"}},
		{"key", Filter{Table: "outbox", Key: &k1}, []string{"outbox/1", "outbox/4"}},
		{"type", Filter{EventType: "type1"}, []string{"outbox/1", "outbox/3", "outbox/5"}},
		{"age", Filter{OlderThan: 4*time.Hour - time.Minute}, []string{"outbox/4", "outbox/5", "outbox/6"}},
		{"error", Filter{ErrorContains: "error 100% 5"}, []string{"outbox/5"}},
		{"ids", Filter{IDs: []string{"6", "1", "9", "77"}}, []string{"outbox/1", "outbox/6", "other/1"}},
		{"both", Filter{Topic: "topic1", Key: &k1}, []string{"outbox/1"}},
	} {
		rows, err := d.List(t.Context(), c.filter)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := names(rows); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	rows, err := d.List(t.Context(), Filter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	if row.Topic != "topic1" || *row.Key != "k1" || row.EventType != "type1" || row.Attempts != 1 || row.LastError != "Error 100% 1" ||
		row.DeadSince == nil || row.Payload != nil || row.MessageID != pgtest.One[string](t, f.DB, `SELECT message_id::text FROM outbox WHERE id = 1`) {
		t.Errorf("got %+v", row)
	}
	shown, err := d.Show(t.Context(), "", "6")
	if err != nil || len(shown) != 1 || string(shown[0].Payload) != "6" || shown[0].Key != nil {
		t.Errorf("shown %+v, %v", shown, err)
	}
	if shown, err := d.Show(t.Context(), "", "9"); err != nil || len(shown) != 0 {
		t.Errorf("a row that isn't DEAD is shown: %+v, %v", shown, err)
	}
	if n, err := d.Count(t.Context()); n != 7 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
}

func TestFilterThatCannotBeMetIsAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE small (id bigint PRIMARY KEY, topic text, key text, payload text, status text)`)
	f.resolve(t, table.Spec{Table: "small"})
	f.Exec(t, `INSERT INTO small VALUES (1, 't', 'k', 'p', 'DEAD')`)
	d := NewDead(f.pool, f.tables)
	for _, bad := range []Filter{{Table: "nowhere"}, {IDs: []string{"x"}}, {EventType: "e"}, {ErrorContains: "e"}, {OlderThan: time.Hour}, {Since: time.Now()}} {
		if n, err := d.Retry(t.Context(), bad, Order{}); err == nil || n != 0 {
			t.Errorf("%+v: %d, %v", bad, n, err)
		}
	}
	rows, err := d.List(t.Context(), Filter{})
	if err != nil || len(rows) != 1 || rows[0].DeadSince != nil || rows[0].LastError != "" {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestRetriedRowsHaveAllTheirAttemptsAgain(t *testing.T) {
	t.Parallel()
	f, d := deadFixture(t)
	f.Exec(t, `UPDATE outbox SET next_attempt_at = now() + interval '1 day' WHERE id = 3`)
	if n, err := d.Retry(t.Context(), Filter{IDs: []string{"3", "9"}, Table: "outbox"}, Order{DryRun: true}); n != 1 || err != nil {
		t.Errorf("dry run: %d, %v", n, err)
	}
	f.wantIDs(t, "DEAD", 1, 2, 3, 4, 5, 6)
	if n, err := d.Retry(t.Context(), Filter{IDs: []string{"3", "9"}, Table: "outbox"}, Order{}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	f.wantIDs(t, "DEAD", 1, 2, 4, 5, 6)
	if !pgtest.One[bool](t, f.DB, `SELECT attempts = 0 AND next_attempt_at <= now() AND last_error = 'Error 100% 3' FROM outbox WHERE id = 3`) {
		t.Error("the row isn't as it should be")
	}
	if n := pgtest.One[int](t, f.DB, `SELECT attempts FROM outbox WHERE id = 9`); n != 9 {
		t.Error("a row that was not DEAD was changed")
	}
}

func TestCase26_OfTwoOperatorsOneFindsNothingLeftToDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, 3000)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD'`)
	d := NewDead(f.pool, f.tables)
	var got [4]int64
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			act := d.Retry
			if i == 3 {
				act = d.Discard
			}
			n, err := act(t.Context(), Filter{}, Order{})
			if err != nil {
				t.Error(err)
			}
			got[i] = n
		})
	}
	wg.Wait()
	if got[0]+got[1]+got[2]+got[3] != 3000 {
		t.Errorf("together they changed %v of 3000 rows", got)
	}
	if n := pgtest.One[int64](t, f.DB, `SELECT count(*) FROM outbox WHERE status = 'PENDING'`); n != 3000-got[3] {
		t.Errorf("%d rows are PENDING, %d were discarded", n, got[3])
	}
	if n, err := d.Retry(t.Context(), Filter{}, Order{}); n != 0 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}

func TestDiscardDeletesDeadRowsOnly(t *testing.T) {
	t.Parallel()
	f, d := deadFixture(t)
	if n, err := d.Discard(t.Context(), Filter{Table: "outbox", IDs: []string{"1", "2", "8"}}, Order{}); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox`); n != 8 {
		t.Errorf("%d rows are left", n)
	}
}

func TestRedriveMakesPublishedRowsPendingAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, 10)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED', attempts = 3, published_at = now() - id * interval '1 hour', topic = 't' || id % 2 WHERE id <= 8`)
	before := pgtest.All[string](t, f.DB, `SELECT message_id::text FROM outbox ORDER BY id`)
	d := NewDead(f.pool, f.tables)
	since := time.Now().Add(-4*time.Hour - time.Minute)
	if n, err := d.Redrive(t.Context(), Filter{Since: since, Topic: "t1"}, Order{DryRun: true}); n != 2 || err != nil {
		t.Errorf("dry run: %d, %v", n, err)
	}
	if n, err := d.Redrive(t.Context(), Filter{Since: since, Topic: "t1"}, Order{}); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	f.wantIDs(t, "PENDING", 1, 3, 9, 10)
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM outbox WHERE id IN (1, 3) AND attempts = 0 AND published_at IS NOT NULL`); n != 2 {
		t.Error("the rows aren't as they should be")
	}
	if after := pgtest.All[string](t, f.DB, `SELECT message_id::text FROM outbox ORDER BY id`); !slices.Equal(before, after) {
		t.Error("message ids have changed")
	}
}

func TestCase42_NamesWithEverythingInThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE SCHEMA "My %d ""S"""; CREATE TABLE "My %d ""S"""."Out %s Bö'x" ("I%d" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		topic text, "K%s" text, "P %[1]s" bytea, "st'%d" text DEFAULT 'it''s % new', "err %" text, created_at timestamptz DEFAULT now())`)
	o := f.resolve(t, table.Spec{
		Table:    `"My %d ""S"""."Out %s Bö'x"`,
		Columns:  map[table.Column]string{table.ID: "I%d", table.Key: "K%s", table.Payload: "P %[1]s", table.Status: "st'%d", table.LastError: "err %"},
		Statuses: map[string]string{table.Pending: "it's % new", table.Published: `o\ut %s`, table.Dead: "d%d'"},
	})
	f.Exec(t, fmt.Sprintf(`INSERT INTO %s (topic, "K%%s") SELECT 't', 'k' FROM generate_series(1, 3)`, o.Ident()))
	r := f.run(t, Config{Retention: time.Hour}, nil)
	all := events(1, 2, 3)
	r.Mark(all[:1])
	r.Fail(all[1], errPermanent)
	r.Fail(all[2], errRetryable)
	r.want(t, event.Published, all[0])
	r.want(t, event.Dead, all[1])
	r.want(t, event.Waiting, all[2])
	k := "k"
	d := NewDead(f.pool, f.tables)
	if n, err := d.Retry(t.Context(), Filter{Key: &k, ErrorContains: "too large", OlderThan: time.Nanosecond, IDs: []string{"1", "2", "3"}}, Order{}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := f.sampler().Sample(t.Context()); err != nil {
		t.Error(err)
	}
	f.Exec(t, fmt.Sprintf(`UPDATE %s SET created_at = now() - interval '2 hours'`, o.Ident()))
	if n := purgeAll(t, f.purger(Config{Retention: time.Hour}), false); n != 1 {
		t.Errorf("purged %d rows", n)
	}
}
