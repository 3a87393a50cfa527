package table

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// findings is what Check finds, without what is in order.
func findings(t *testing.T, q Querier, o *Outbox) []preflight.Finding {
	t.Helper()
	var out []preflight.Finding
	for _, f := range o.Check(context.Background(), q) {
		if !strings.HasPrefix(f.Subject, "table "+o.String()) || f.Detail == "" {
			t.Errorf("incomplete finding %+v", f)
		}
		if f.Severity != preflight.OK {
			out = append(out, f)
		}
	}
	return out
}

func TestCheckFindsAMadeTableInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	if err := Init(context.Background(), conn, DDLOptions{Table: "outbox"}); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, conn, resolve(t, conn, Spec{Table: "outbox"})); len(f) != 0 {
		t.Errorf("%+v", f)
	}
}

// TestCheckProposesRemediesThatWork runs each remedy and looks again.
func TestCheckProposesRemediesThatWork(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `
		CREATE UNLOGGED TABLE "Adopted" (id bigint NOT NULL, topic text, "Key" text, payload json, status varchar(10), created_at timestamptz);
		ALTER TABLE "Adopted" ENABLE ROW LEVEL SECURITY;
		CREATE SCHEMA "Half Open"; ALTER TABLE "Adopted" SET SCHEMA "Half Open";
		CREATE ROLE "Relay of check"`)
	t.Cleanup(func() { db.Exec(t, `DROP OWNED BY "Relay of check"; DROP ROLE "Relay of check"`) })
	spec := Spec{Table: `"Half Open"."Adopted"`, Columns: map[Column]string{Key: "Key"}, Statuses: map[string]string{Pending: "it's", Dead: `b\c`}}
	o := resolve(t, conn, spec)
	exec(t, conn, `SET ROLE "Relay of check"`)
	found := findings(t, conn, o)
	want := map[string]preflight.Severity{
		"persistence": preflight.Failure, "privileges": preflight.Failure, "row security": preflight.Warning, "autovacuum": preflight.Note,
		"index of it's rows": preflight.Warning, `index of b\c rows`: preflight.Note, "column id": preflight.Warning,
		"column message_id": preflight.Note, "column headers": preflight.Note, "column event_type": preflight.Note, "column attempts": preflight.Note,
		"column next_attempt_at": preflight.Note, "column last_error": preflight.Note, "column published_at": preflight.Note,
	}
	exec(t, conn, `RESET ROLE`)
	for _, f := range found {
		what := strings.TrimPrefix(f.Subject, "table Half Open.Adopted, ")
		if severity, ok := want[what]; !ok || severity != f.Severity {
			t.Errorf("unexpected %+v", f)
		}
		if what != "privileges" { // of which there are two: schema and table
			delete(want, what)
		}
		if !strings.HasSuffix(f.Remedy, ";") {
			t.Errorf("no SQL in %+v", f)
			continue
		}
		exec(t, conn, f.Remedy)
	}
	if len(want) != 1 {
		t.Errorf("not found: %v", want)
	}
	o = resolve(t, conn, spec)
	exec(t, conn, `SET ROLE "Relay of check"`)
	for _, f := range findings(t, conn, o) {
		if f.Severity != preflight.Warning || !strings.Contains(f.Subject, "row security") { // it is still active, and says so
			t.Errorf("still there: %+v", f)
		}
	}
	exec(t, conn, `RESET ROLE`)
}

func TestCheckTakesPrivilegesOnColumns(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	if err := Init(context.Background(), conn, DDLOptions{Table: "outbox"}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE ROLE relay_by_column; GRANT SELECT, DELETE ON outbox TO relay_by_column;
		GRANT UPDATE (status, attempts, next_attempt_at, last_error, published_at) ON outbox TO relay_by_column`)
	t.Cleanup(func() { db.Exec(t, `DROP OWNED BY relay_by_column; DROP ROLE relay_by_column`) })
	o := resolve(t, conn, Spec{Table: "outbox"})
	exec(t, conn, `SET ROLE relay_by_column`)
	if f := findings(t, conn, o); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	exec(t, conn, `RESET ROLE; REVOKE UPDATE (status) ON outbox FROM relay_by_column; REVOKE DELETE ON outbox FROM relay_by_column; SET ROLE relay_by_column`)
	f := findings(t, conn, o)
	if len(f) != 1 || f[0].Severity != preflight.Failure || f[0].Remedy != `GRANT UPDATE, DELETE ON "public"."outbox" TO "relay_by_column";` {
		t.Errorf("%+v", f)
	}
	exec(t, conn, `RESET ROLE`)
}

func TestCheckKnowsTheIndexOfPendingRowsWhateverTheStatusType(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE TYPE "St ate" AS ENUM ('PENDING', 'PUBLISHED', 'DEAD'); CREATE DOMAIN word AS varchar(20)`)
	for _, typ := range []string{"text", "varchar", "varchar(12)", "char(9)", `"St ate"`, "word"} {
		exec(t, conn, `DROP TABLE IF EXISTS outbox; CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload json, "Status" `+typ+`)`)
		o := resolve(t, conn, Spec{Table: "outbox", Columns: map[Column]string{Status: "Status"}})
		exec(t, conn, o.createIndex([]string{"id"}, Pending))
		if f := about(o.Check(context.Background(), conn), "index of PENDING rows"); f.Severity != preflight.OK {
			t.Errorf("%s: %+v", typ, f)
		}
		for name, other := range map[string]string{
			"another state": `(id) WHERE "Status" = 'DEAD'`, "another order": `(key) WHERE "Status" = 'PENDING'`,
			"more": `(id) WHERE "Status" = 'PENDING' AND key IS NULL`, "all": `(id)`,
		} {
			exec(t, conn, `DROP INDEX outbox_pending; CREATE INDEX outbox_pending ON outbox `+other)
			if f := about(o.Check(context.Background(), conn), "index of PENDING rows"); f.Severity != preflight.Warning {
				t.Errorf("%s, %s: %+v", typ, name, f)
			}
		}
	}
}

func TestCheckWantsAnIndexThatIsValid(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE TABLE outbox (id uuid NOT NULL, topic text, key text, payload json, status text, created_at timestamptz)`)
	exec(t, conn, `INSERT INTO outbox SELECT gen_random_uuid(), 't', 'k', '{}', 'PENDING', '2026-01-01' FROM generate_series(1, 2)`)
	if _, err := conn.Exec(context.Background(), `CREATE UNIQUE INDEX CONCURRENTLY outbox_pending ON outbox (created_at, topic) WHERE status = 'PENDING'`); err == nil {
		t.Fatal("the index was to fail")
	}
	exec(t, conn, `DROP INDEX outbox_pending`)
	exec(t, conn, `INSERT INTO outbox SELECT id, topic, key, payload, status, created_at FROM outbox`)
	if _, err := conn.Exec(context.Background(), `CREATE UNIQUE INDEX CONCURRENTLY outbox_pending ON outbox (created_at, id) WHERE status = 'PENDING'`); err == nil {
		t.Fatal("the index was to fail")
	}
	o := resolve(t, conn, Spec{Table: "outbox"})
	f := about(o.Check(context.Background(), conn), "index of PENDING rows")
	if f.Severity != preflight.Warning || !strings.Contains(f.Detail, "outbox_pending is not valid") || !strings.HasPrefix(f.Remedy, "DROP INDEX outbox_pending; CREATE INDEX CONCURRENTLY") {
		t.Fatalf("%+v", f)
	}
	for _, statement := range strings.SplitAfter(strings.TrimSuffix(f.Remedy, ";"), ";") {
		exec(t, conn, statement)
	}
	if f := about(o.Check(context.Background(), conn), "index of PENDING rows"); f.Severity != preflight.OK {
		t.Errorf("%+v", f)
	}
}

func TestCheckOfAPartitionedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE TABLE outbox (id bigint GENERATED BY DEFAULT AS IDENTITY, message_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text, key text, payload json,
			headers jsonb, event_type text, status text DEFAULT 'PENDING', attempts int DEFAULT 0, next_attempt_at timestamptz, last_error text,
			created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
		CREATE TABLE outbox_all PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO (MAXVALUE)`)
	o := resolve(t, conn, Spec{Table: "outbox"})
	if !o.Partitioned() {
		t.Error("not partitioned")
	}
	for _, f := range findings(t, conn, o) {
		if !strings.Contains(f.Subject, "index of") {
			t.Errorf("%+v", f)
		}
		exec(t, conn, f.Remedy)
	}
	if f := findings(t, conn, o); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	// The stream names the root, and poll and stream agree.
	text, _ := stream(t, db)
	exec(t, conn, `INSERT INTO outbox (topic, payload) VALUES ('a', '1'); INSERT INTO outbox_all (id, topic, payload) VALUES (2, 'b', '2')`)
	got := streamed(t, conn, text, db.Publication, false, map[uint32]*Outbox{o.OID: o})[o.OID]
	if diff := sameRows(polled(t, conn, o, 1), got); diff != "" || len(got) != 2 {
		t.Errorf("%d rows: %s", len(got), diff)
	}
}

func TestCheckSaysThatGeneratedColumnsAreNotStreamed(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, customer bigint, key text GENERATED ALWAYS AS ('c' || customer) STORED, payload json, status text)`)
	o := resolve(t, conn, Spec{Table: "outbox"})
	if f := about(o.Check(context.Background(), conn), "column key"); f.Severity != preflight.Warning {
		t.Errorf("%+v", f)
	}
	_, err := o.Decoder([]WireColumn{{"id", 20}, {"topic", 25}, {"customer", 20}, {"payload", 114}, {"status", 25}})
	if err == nil || !strings.Contains(err.Error(), "the stream doesn't carry generated columns") {
		t.Errorf("error %v", err)
	}
}

func TestCheckRefusesATemporaryTable(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	exec(t, conn, `CREATE TEMPORARY TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload json, status text)`)
	if f := about(resolve(t, conn, Spec{Table: "outbox"}).Check(context.Background(), conn), "persistence"); f.Severity != preflight.Failure {
		t.Errorf("%+v", f)
	}
}

func TestCheckReportsThatItCouldNotLook(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn, err := pgx.Connect(context.Background(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload json, status text)`)
	o := resolve(t, conn, Spec{Table: "outbox"})
	if err := conn.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if preflight.Worst(o.Check(context.Background(), conn)) != preflight.Failure {
		t.Error("a check that saw nothing is in order")
	}
}

// about is the finding whose subject ends in what.
func about(all []preflight.Finding, what string) preflight.Finding {
	for _, f := range all {
		if strings.HasSuffix(f.Subject, ", "+what) {
			return f
		}
	}
	return preflight.Finding{}
}
