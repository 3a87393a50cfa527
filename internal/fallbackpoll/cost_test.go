package fallbackpoll

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// plan is what EXPLAIN (FORMAT JSON) says of a node.
type plan struct {
	Type   string  `json:"Node Type"`
	Index  string  `json:"Index Name"`
	Hit    float64 `json:"Shared Hit Blocks"`
	Read   float64 `json:"Shared Read Blocks"`
	Plans  []plan  `json:"Plans"`
	Filter string  `json:"Filter"`
}

func (p plan) String() string {
	s := p.Type + " " + p.Index
	for _, c := range p.Plans {
		s += " <- " + c.String()
	}
	return strings.TrimSpace(s)
}

// explain runs a statement as a generic plan, the hardest case for a partial index.
func (f *fixture) explain(t *testing.T, sql string, args ...string) plan {
	t.Helper()
	conn := f.Connect(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`SET plan_cache_mode = force_generic_plan`)
	exec(`PREPARE s AS ` + sql)
	call := "s"
	if len(args) > 0 {
		call += "(" + strings.Join(args, ", ") + ")"
	}
	var out []byte
	if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE `+call).Scan(&out); err != nil {
		t.Fatal(err)
	}
	var top []struct{ Plan plan }
	if err := json.Unmarshal(out, &top); err != nil {
		t.Fatal(err)
	}
	return top[0].Plan
}

func TestG8_StatementsReadTheIndexOfPendingRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.Exec(t, `CREATE TABLE by_uuid (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text, key text, payload text,
		status text DEFAULT 'PENDING', created_at timestamptz DEFAULT clock_timestamp());
		CREATE INDEX by_uuid_pending ON by_uuid (created_at, id) WHERE status = 'PENDING'`)
	o, u := f.tables[0], f.resolve(t, table.Spec{Table: "by_uuid"})
	for _, many := range []string{"PUBLISHED", "PENDING"} { // the two extremes of what the planner can know
		f.Exec(t, `TRUNCATE outbox, by_uuid RESTART IDENTITY`)
		f.Exec(t, `INSERT INTO outbox (topic, payload, status) SELECT 't', '1', $1 FROM generate_series(1, 20000)`, many)
		f.Exec(t, `INSERT INTO by_uuid (topic, payload, status) SELECT 't', '1', $1 FROM generate_series(1, 20000)`, many)
		f.insert(t, "outbox", 10)
		f.Exec(t, `INSERT INTO by_uuid (topic, payload) SELECT 't', '1' FROM generate_series(1, 10)`)
		f.Exec(t, `ANALYZE outbox, by_uuid`)
		uid := `'00000000-0000-0000-0000-000000000000'`
		for _, c := range []struct {
			sql, index string
			args       []string
		}{
			{boundSQL(o, false), "outbox_pending", nil},
			{boundSQL(o, true), "outbox_pending", []string{"3"}},
			{pageSQL(o, byID, false, 1000), "outbox_pending", []string{"30000"}},
			{pageSQL(o, byID, true, 1000), "outbox_pending", []string{"30000", "3"}},
			{pageSQL(o, byID, true, 1), "outbox_pending", []string{"30000", "3"}},
			{boundSQL(u, false), "by_uuid_pending", nil},
			{undatedSQL(u), "by_uuid_pending", nil},
			{pageSQL(u, byCreatedAt, false, 1000), "by_uuid_pending", []string{"now()"}},
			{pageSQL(u, byCreatedAt, true, 1000), "by_uuid_pending", []string{"now()", "now()", uid}},
		} {
			got := f.explain(t, c.sql, c.args...).String()
			if !strings.Contains(got, c.index) || strings.Contains(got, "Sort") || strings.Contains(got, "Seq Scan") {
				t.Errorf("most rows %s: plan %q of %s", many, got, c.sql)
			}
		}
	}
}

func TestCase18_DeadAndPublishedRowsCostThePollNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 10)
	sql := pageSQL(f.tables[0], byID, false, 1000)
	f.Exec(t, `ANALYZE outbox`)
	f.Exec(t, `INSERT INTO outbox (topic, payload, status) SELECT 't', '1', 'PUBLISHED' FROM generate_series(1, 1000)`)
	f.Exec(t, `VACUUM ANALYZE outbox`)
	before := f.explain(t, sql, "1000000")
	f.Exec(t, `INSERT INTO outbox (topic, payload, status) SELECT 't', '1', s FROM generate_series(1, 10000), unnest(ARRAY['PUBLISHED', 'DEAD']) s`)
	f.Exec(t, `VACUUM ANALYZE outbox`)
	after := f.explain(t, sql, "1000000")
	if a, b := after.Hit+after.Read, before.Hit+before.Read; a > b+2 {
		t.Errorf("%v buffers, then %v", b, a)
	}
}

// pin holds back the horizon of vacuum, as a long report would.
func (f *fixture) pin(t *testing.T) (release func()) {
	t.Helper()
	tx, ctx := f.begin(t)
	if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback(ctx) }
}

func TestCase34_UnderALongReaderAPassStartsAtAFloor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	defer f.pin(t)()
	for range 20 {
		f.insert(t, "outbox", 1000)
		f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE status = 'PENDING'`)
	}
	// Nothing is PENDING: the floor comes from the table's highest row.
	now := time.Now()
	p := f.poller(t, Config{SlowQuery: -1, FloorMargin: 500})
	p.now = func() time.Time { return now }
	pages(t, p)
	if fl := p.tables[0].floor; !fl.known || fl.id != 20000-1-500 {
		t.Fatalf("floor %+v", fl)
	}
	whole := f.explain(t, pageSQL(f.tables[0], byID, false, 1000), "100000")
	floored := f.explain(t, pageSQL(f.tables[0], byID, true, 1000), "100000", fmt.Sprint(p.tables[0].floor.id))
	if w, fl := whole.Hit+whole.Read, floored.Hit+floored.Read; fl > w/10 {
		t.Errorf("a whole pass reads %v buffers, one with a floor %v", w, fl)
	}

	// What becomes PENDING below the floor is found by the next whole pass: after a minute, or when one is asked for.
	f.Exec(t, `UPDATE outbox SET status = 'PENDING' WHERE id IN (7, 19900)`)
	if diff := cmp.Diff([]string{"19900"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
	now = now.Add(time.Minute)
	if diff := cmp.Diff([]string{"7", "19900"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
	// The whole pass has put the floor below what it saw.
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id = 7`)
	if diff := cmp.Diff([]string{"19900"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
	now = now.Add(time.Minute)
	pages(t, p)
	f.Exec(t, `UPDATE outbox SET status = 'PENDING' WHERE id = 7`)
	if diff := cmp.Diff([]string{"19900"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"7", "19900"}, ids(pass(t, p, true)...)); diff != "" {
		t.Error(diff)
	}
}

func TestHealthyDatabaseIsAlwaysReadWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	p := f.poller(t, Config{SlowQuery: time.Hour, FloorMargin: 1})
	f.insert(t, "outbox", 100)
	f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED' WHERE id < 100`)
	pages(t, p)
	f.Exec(t, `UPDATE outbox SET status = 'PENDING' WHERE id = 7`)
	if diff := cmp.Diff([]string{"7", "100"}, ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}
