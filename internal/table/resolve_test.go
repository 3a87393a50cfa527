package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestAMadeTableIsResolvedAsItIs(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	if err := Init(context.Background(), conn, DDLOptions{Table: "outbox"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"outbox", "public.outbox", "OUTBOX", `"public"."outbox"`} {
		o := resolve(t, conn, Spec{Table: name})
		if o.String() != "public.outbox" || o.Ident() != `"public"."outbox"` || o.Index != 3 || o.IDType() != "bigint" {
			t.Errorf("%s: %+v", name, o)
		}
		if len(o.Missing()) != 0 || o.Partitioned() || o.OrderByCreatedAt() || o.ReplicaIdentity() != "default" {
			t.Errorf("%s: missing %v, partitioned %v, by created_at %v, identity %s", name, o.Missing(), o.Partitioned(), o.OrderByCreatedAt(), o.ReplicaIdentity())
		}
		if o.OID != pgtest.One[uint32](t, db, "SELECT 'outbox'::regclass::oid") {
			t.Errorf("%s: oid %d", name, o.OID)
		}
		want := `"id" "message_id" "key" "payload" "headers" "event_type" "status" "attempts" "next_attempt_at" "last_error" "created_at" "published_at" "topic"`
		if got := strings.Join(o.PollColumns(), " "); got != want {
			t.Errorf("poll columns %s", got)
		}
	}
}

func TestATableIsFoundAlongTheSearchPath(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE SCHEMA a; CREATE SCHEMA b; SET search_path = b, a`)
	for _, schema := range []string{"a", "public"} {
		if err := Init(context.Background(), conn, DDLOptions{Table: schema + ".outbox"}); err != nil {
			t.Fatal(err)
		}
	}
	if o := resolve(t, conn, Spec{Table: "outbox"}); o.Schema != "a" {
		t.Errorf("found in %s", o.Schema)
	}
	exec(t, conn, `SET search_path = b`)
	_, err := Resolve(context.Background(), conn, 0, Spec{Table: "outbox"})
	if err == nil || !strings.Contains(err.Error(), "in schema a, public") {
		t.Errorf("error %v", err)
	}
}

func TestResolveNamesEveryProblemWithItsRemedy(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `
		CREATE TYPE state AS ENUM ('PENDING', 'SENT', 'DEAD');
		CREATE TABLE good (id bigint PRIMARY KEY, topic text, key text, payload json, status text);
		CREATE TABLE bad (id numeric PRIMARY KEY, topic json, key text, payload xml, status state, attempts text, next_attempt_at timestamp);
		CREATE TABLE by_uuid (id uuid PRIMARY KEY, topic text, key text, payload json, status text);
		CREATE TABLE nullable (id bigint UNIQUE, topic text, key text, payload json, status text);
		CREATE TABLE enumerated (id bigint PRIMARY KEY, topic text, key text, payload json, status state);
		CREATE TABLE nothing (x int);
		CREATE VIEW seen AS SELECT * FROM good;
		CREATE MATERIALIZED VIEW kept AS SELECT * FROM good;
		CREATE SEQUENCE numbers;`)
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"no table", Spec{Table: "absent"}, []string{`no table "absent" in the search_path`, "run cdc-relay init or set outboxes[3].table"}},
		{"no schema", Spec{Table: "shop.outbox"}, []string{`no table "outbox" in schema "shop"`}},
		{"capitals", Spec{Table: "Absent"}, []string{"needs double quotes"}},
		{"too many parts", Spec{Table: "a.b.c"}, []string{"3 parts", "outboxes[3].table"}},
		{"open quote", Spec{Table: `"a`}, []string{"isn't closed"}},
		{"too long", Spec{Table: strings.Repeat("é", 32)}, []string{"63 bytes"}},
		{"view", Spec{Table: "seen"}, []string{"public.seen is a view"}},
		{"materialized view", Spec{Table: "kept"}, []string{"is a materialized view"}},
		{"sequence", Spec{Table: "numbers"}, []string{"is not a table"}},
		{"all at once", Spec{Table: "nothing"}, []string{
			`no column "id"`, `outboxes[3].columns.id`, `no column "payload"`, `no column "key"`, `no column "topic"`, "the table has x",
			`ALTER TABLE "public"."nothing" ADD COLUMN "status" text NOT NULL DEFAULT 'PUBLISHED'`}},
		{"types", Spec{Table: "bad"}, []string{
			`column "id" is numeric, but id must be bigint, integer or uuid`, `column "topic" is json`, `column "payload" is xml, but payload must be json, jsonb, text, char or bytea`,
			`"attempts" is text`, `"next_attempt_at" is timestamp without time zone, but next_attempt_at must be timestamptz (set outboxes[3].columns.next_attempt_at to another column, or to "" to do without)`,
			`has no label "PUBLISHED" for PUBLISHED, only PENDING, SENT, DEAD`, `ALTER TYPE state ADD VALUE 'PUBLISHED';`}},
		{"uuid without age", Spec{Table: "by_uuid"}, []string{"a uuid id needs a created_at", "outboxes[3].columns.created_at"}},
		{"id that can be NULL", Spec{Table: "nullable"}, []string{`ALTER TABLE "public"."nullable" ALTER COLUMN "id" SET NOT NULL;`}},
		{"mapped to nothing", Spec{Table: "good", Columns: map[Column]string{LastError: "oops", "colour": "x", Payload: ""}}, []string{
			`no column "oops"`, "columns.last_error", `"colour" in columns is no column of the relay`, "can't do without a column for payload"}},
		{"shared", Spec{Table: "good", Columns: map[Column]string{LastError: "status", MessageID: "topic", EventType: "topic"}}, []string{`column "status" is mapped to both status and last_error`}},
		{"template", Spec{Table: "good", Topic: "a.{{topic"}, []string{"isn't closed", "set outboxes[3].topic"}},
		{"template over nothing", Spec{Table: "good", Topic: "{{kind}}"}, []string{`names "kind", but the table has only id, topic`}},
		{"template over json", Spec{Table: "good", Topic: "{{payload}}"}, []string{`column "payload" is json`}},
		{"states", Spec{Table: "good", Statuses: map[string]string{"DONE": "x", Published: "PENDING"}}, []string{`"DONE" is no state`, `the word "PENDING" for PUBLISHED is empty or used twice`}},
		{"enum", Spec{Table: "enumerated", Statuses: map[string]string{Published: "sent"}}, []string{`no label "sent"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Resolve(context.Background(), conn, 3, c.spec)
			var re *ResolveError
			if !errors.As(err, &re) {
				t.Fatalf("error %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %s", want, err)
				}
			}
			for _, p := range re.Problems {
				if p.Subject != "table "+c.spec.Table || p.Detail == "" || p.Remedy == "" {
					t.Errorf("incomplete finding %+v", p)
				}
			}
		})
	}
}

func TestAFailingQueryIsNoProblemOfTheTable(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Resolve(ctx, conn, 0, Spec{Table: "outbox"})
	var re *ResolveError
	if !errors.Is(err, context.Canceled) || errors.As(err, &re) {
		t.Fatalf("error %v", err)
	}
}

func TestAForeignTableIsAdoptedByMapping(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `
		CREATE TYPE "Event State" AS ENUM ('new', 'it''s done', 'gave\up');
		CREATE TABLE "Domain Events" (aggregatetype varchar(255) NOT NULL, "Id" uuid PRIMARY KEY, aggregateid varchar(255), type varchar(255), payload jsonb,
			"State" "Event State" NOT NULL DEFAULT 'new', occurred timestamptz NOT NULL DEFAULT now(), topic json)`)
	o := resolve(t, conn, Spec{
		Table: `"Domain Events"`, Topic: "outbox.event.{{aggregatetype}}",
		Columns:  map[Column]string{ID: "Id", MessageID: "Id", Key: "aggregateid", EventType: "type", Status: "State", CreatedAt: "occurred", Topic: ""},
		Statuses: map[string]string{Pending: "new", Published: "it's done", Dead: `gave\up`},
	})
	if !o.OrderByCreatedAt() || o.Has(Topic) || o.Has(Attempts) || o.Col(Attempts) != "" || o.Col(Status) != `"State"` || o.IDType() != "uuid" {
		t.Fatalf("%+v", o)
	}
	if len(o.Missing()) != 5 {
		t.Errorf("missing %q", o.Missing())
	}
	id := [16]byte{1, 2, 3, 15: 9}
	exec(t, conn, `INSERT INTO "Domain Events" ("Id", aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', '7', 'OrderPlaced', '{}')`, id)
	for _, format := range []int16{0, 1} {
		rows := polled(t, conn, o, format)
		e := one(t, rows)
		if e.ID != event.UUIDID(3, id) || e.MessageID != id || e.Topic != "outbox.event.order" || e.Key != "7" || e.Type != "OrderPlaced" || !rows[0].Pending || e.Invalid != nil {
			t.Errorf("%+v", e)
		}
	}
	for _, state := range []string{Published, Dead, Pending} {
		exec(t, conn, fmt.Sprintf(`UPDATE %s SET %s = %s`, o.Ident(), o.Col(Status), o.StatusLiteral(state)))
		if got := pgtest.One[string](t, db, `SELECT "State"::text FROM "Domain Events"`); got != o.StatusWord(state) {
			t.Errorf("%s is %q", state, got)
		}
		exec(t, conn, fmt.Sprintf(`UPDATE %s SET %s = $1 WHERE %[2]s = $1`, o.Ident(), o.Col(Status)), o.StatusWord(state))
	}
}

func TestATableWithoutKeysIsAdopted(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	exec(t, conn, `CREATE TABLE log (id integer PRIMARY KEY, payload text, status text)`)
	o := resolve(t, conn, Spec{Table: "log", Topic: "log", Columns: map[Column]string{Key: ""}})
	exec(t, conn, `INSERT INTO log VALUES (-5, '', 'PENDING')`)
	e := one(t, polled(t, conn, o, 1))
	if e.ID != event.IntID(3, -5) || e.HasKey || e.Topic != "log" || e.Payload == nil || len(e.Payload) != 0 || e.MessageID[6]>>4 != 8 || e.MessageID[8]>>6 != 2 {
		t.Errorf("%+v", e)
	}
	if e.MessageID != one(t, polled(t, conn, o, 0)).MessageID {
		t.Error("the derived message id isn't stable")
	}
	exec(t, conn, `UPDATE log SET id = 5`)
	if e.MessageID == one(t, polled(t, conn, o, 0)).MessageID {
		t.Error("rows share a derived message id")
	}
}

// Consumers remember message ids: a later version must derive the same.
func TestDerivedMessageIdsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	if got := event.FormatUUID(derive([]byte("public\x00outbox\x0042"))); got != "baae060f-71d1-856b-8147-e9a575c20756" {
		t.Errorf("derived %s", got)
	}
	for i := range 100 {
		if u := derive(fmt.Append(nil, i)); u[6]>>4 != 8 || u[8]>>6 != 2 {
			t.Errorf("%x is no uuid of version 8", u)
		}
	}
}

func TestCase36_EveryProtocolOfThePoolServes(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		conn, err := pgx.Connect(context.Background(), db.DSN+"&default_query_exec_mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		table := "outbox_" + mode
		if err := Init(context.Background(), conn, DDLOptions{Table: table}); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		exec(t, conn, `CREATE TYPE state_`+mode+` AS ENUM ('PENDING', 'PUBLISHED', 'DEAD'); DROP INDEX `+table+`_pending, `+table+`_dead;
			ALTER TABLE `+table+` DROP CONSTRAINT `+table+`_status_check, ALTER status DROP DEFAULT, ALTER status TYPE state_`+mode+` USING status::state_`+mode)
		o := resolve(t, conn, Spec{Table: table})
		for _, f := range findings(t, conn, o) {
			exec(t, conn, f.Remedy)
		}
		if f := findings(t, conn, o); len(f) != 0 {
			t.Errorf("%s: %+v", mode, f)
		}
		var re *ResolveError
		if _, err := Resolve(context.Background(), conn, 0, Spec{Table: "absent"}); !errors.As(err, &re) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestCase42_AnyNameWorksEverywhere(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	const column = `Päy "lo'ad.`
	for i, name := range []string{"Outbox", `with "quotes"`, "with space", "übergrößen東京😀", strings.Repeat("x", 63), strings.Repeat("é", 31) + "x", "a.b", "select", `back\slash`, "x'y"} {
		schema := []string{"public", `Sche"ma .`}[i%2]
		exec(t, conn, "CREATE SCHEMA IF NOT EXISTS "+quote(schema))
		spec := Spec{Table: quote(schema) + "." + quote(name)}
		for range 2 {
			if err := Init(context.Background(), conn, DDLOptions{Table: spec.Table, PayloadType: "text"}); err != nil {
				t.Fatal(err)
			}
		}
		exec(t, conn, "ALTER TABLE "+spec.Table+" RENAME payload TO "+quote(column))
		spec.Columns = map[Column]string{Payload: column}
		spec.Topic = "t-{{ " + column + " }}-{{topic}}"
		o := resolve(t, conn, spec)
		if o.Ident() != spec.Table || o.String() != schema+"."+name {
			t.Errorf("%s became %s, %s", spec.Table, o.Ident(), o)
		}
		exec(t, conn, fmt.Sprintf("INSERT INTO %s (topic, %s) VALUES ('a', 'b')", o.Ident(), o.Col(Payload)))
		if e := one(t, polled(t, conn, o, 1)); e.Topic != "t-b-a" || string(e.Payload) != "b" {
			t.Errorf("%s: %+v", name, e)
		}
		for _, f := range o.Check(context.Background(), conn) {
			if f.Severity != 0 {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

func TestIdsComeAndGo(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE bigints (id bigint PRIMARY KEY, key text, payload text, status text);
		CREATE TABLE integers (id integer PRIMARY KEY, key text, payload text, status text);
		CREATE TABLE uuids (id uuid PRIMARY KEY, key text, payload text, status text, created_at timestamptz)`)
	for name, ids := range map[string][]string{
		"bigints":  {"-9223372036854775808", "-1", "9223372036854775807"},
		"integers": {"-2147483648", "0", "2147483647"},
		"uuids":    {"00000000-0000-0000-0000-000000000000", "0b8dfe2d-3c1f-4b2b-9a2e-7d5a8c0f1e2d", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
	} {
		conn := db.Connect(t)
		o := resolve(t, conn, Spec{Table: name, Topic: "t"})
		var want []event.RowID
		for _, s := range ids {
			id, err := o.ParseID(s)
			if err != nil || id.String() != s || id.Table != 3 {
				t.Fatalf("%s became %v, %v", s, id, err)
			}
			want = append(want, id)
		}
		exec(t, conn, fmt.Sprintf("INSERT INTO %s (id) SELECT unnest($1::%s[])", o.Ident(), o.IDType()), o.IDArray(want))
		exec(t, conn, fmt.Sprintf("INSERT INTO %s (id) VALUES ($1::%s) ON CONFLICT DO NOTHING", o.Ident(), o.IDType()), o.IDArg(want[0]))
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			rows, err := conn.Query(context.Background(), fmt.Sprintf("SELECT id FROM %s WHERE id = ANY($1::%s[]) AND id >= $2::%[2]s ORDER BY id", o.Ident(), o.IDType()), mode, o.IDArray(want), o.IDArg(want[0]))
			if err != nil {
				t.Fatal(err)
			}
			var id event.RowID
			var got []event.RowID
			if _, err := pgx.ForEachRow(rows, []any{o.ScanID(&id)}, func() error { got = append(got, id); return nil }); err != nil {
				t.Fatalf("%s, %s: %v", name, mode, err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || got[0] != want[0] {
				t.Errorf("%s, %s: %v", name, mode, got)
			}
		}
		if _, err := o.ParseID("2147483648"); (err == nil) != (name == "bigints") {
			t.Errorf("%s and 2147483648: %v", name, err)
		}
		for _, bad := range []string{"", "x", "1.5", "9223372036854775808", "0b8dfe2d-3c1f-4b2b-9a2e-7d5a8c0f1e2", "0b8dfe2d-3c1f-4b2b-9a2e-7d5a8c0f1e2g", "0b8dfe2d3c1f4b2b9a2e7d5a8c0f1e2d"} {
			if _, err := o.ParseID(bad); err == nil || !strings.Contains(err.Error(), o.IDType()) {
				t.Errorf("%s takes %q: %v", name, bad, err)
			}
		}
		if err := conn.QueryRow(context.Background(), "SELECT NULL::"+o.IDType()).Scan(o.ScanID(&event.RowID{})); !errors.Is(err, errNullID) {
			t.Errorf("NULL id: %v", err)
		}
	}
}
