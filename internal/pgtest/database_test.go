package pgtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestEachTestHasItsOwnNames(t *testing.T) {
	t.Parallel()
	a, b := pgtest.Database(t), pgtest.Database(t)
	if a.Name == b.Name || a.Slot == b.Slot || a.Publication == b.Publication {
		t.Errorf("%+v and %+v", a, b)
	}
	for _, db := range []*pgtest.DB{a, b} {
		db.Exec(t, "CREATE TABLE n (i int)")
		db.Exec(t, "CREATE PUBLICATION "+db.Publication+" FOR TABLE n")
		db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Slot)
		if got := pgtest.One[string](t, db, "SELECT current_database()"); got != db.Name {
			t.Errorf("current_database() = %s, want %s", got, db.Name)
		}
	}
}

func TestADatabaseIsDroppedWithItsSlotAndSessions(t *testing.T) {
	t.Parallel()
	var db *pgtest.DB
	var walsender *pgconn.PgConn
	t.Run("left over", func(t *testing.T) {
		db = pgtest.Database(t)
		db.Exec(t, "CREATE TABLE n (i int); CREATE PUBLICATION p FOR TABLE n")
		var err error
		walsender, err = pgconn.Connect(t.Context(), pgtest.ReplicationDSN(db.DSN))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pglogrepl.CreateReplicationSlot(t.Context(), walsender, db.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{}); err != nil {
			t.Fatal(err)
		}
		err = pglogrepl.StartReplication(t.Context(), walsender, db.Slot, 0,
			pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", "publication_names 'p'"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.Connect(context.Background(), db.DSN); err != nil { // and an ordinary session
			t.Fatal(err)
		}
	})
	defer walsender.Close(context.Background())
	other := pgtest.Database(t)
	if n := pgtest.One[int](t, other, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", db.Slot); n != 0 {
		t.Error("the slot is still there")
	}
	if n := pgtest.One[int](t, other, "SELECT count(*) FROM pg_database WHERE datname = $1", db.Name); n != 0 {
		t.Error("the database is still there")
	}
}

func TestHelpersReadAndWrite(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE n (i int); CREATE ROLE "+db.Name+"_reader LOGIN")
	t.Cleanup(func() { db.Exec(t, "DROP ROLE "+db.Name+"_reader") })
	if got := db.Exec(t, "INSERT INTO n SELECT generate_series(1, $1)", 3); got != 3 {
		t.Errorf("Exec = %d rows", got)
	}
	var lo, hi int
	db.QueryRow(t, "SELECT min(i), max(i) FROM n").Scan(&lo, &hi)
	if all := pgtest.All[int](t, db, "SELECT i FROM n ORDER BY i"); lo != 1 || hi != 3 || fmt.Sprint(all) != "[1 2 3]" {
		t.Errorf("lo %d, hi %d, all %v", lo, hi, all)
	}
	conn, err := pgx.Connect(t.Context(), db.DSNAs(db.Name+"_reader"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "SELECT * FROM n"); err == nil {
		t.Error("a role without privileges reads the table")
	}
	if _, err := db.Pool(t).Exec(t.Context(), "TABLE n"); err != nil {
		t.Error(err)
	}
}

func TestAFailingHelperNamesItsStatement(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	fake := &recorder{T: t}
	func() {
		defer func() { _ = recover() }()
		db.Exec(fake, "SELECT no_such_function()")
	}()
	if !strings.Contains(fake.fatal, "SELECT no_such_function()") {
		t.Errorf("failed with %q", fake.fatal)
	}
}

// recorder keeps what would have failed the test.
type recorder struct {
	*testing.T
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	panic("fatal")
}
