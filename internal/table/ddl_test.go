package table

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestTheDDLIsAsDocumented(t *testing.T) {
	t.Parallel()
	for file, o := range map[string]DDLOptions{
		"outbox.sql":       {Table: "outbox"},
		"outbox_bytea.sql": {Table: `"My Shop".` + quote(strings.Repeat("é", 31)), PayloadType: "bytea"},
	} {
		statements, err := DDL(o)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(statements, "\n") + "\n"
		path := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test -update writes it anew):\n%s", file, got)
		}
	}
}

func TestTheDDLRefusesWhatItCantMake(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]DDLOptions{
		`payload type "xml" is not one of json, jsonb, text, bytea`: {Table: "outbox", PayloadType: "xml"},
		"a part of it is empty": {Table: "shop."},
	} {
		if _, err := DDL(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestThePrintedDDLRunsTwice(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for _, typ := range PayloadTypes {
		statements, err := DDL(DDLOptions{Table: "outbox_" + typ, PayloadType: typ})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			db.Exec(t, strings.Join(statements, "\n"))
		}
		db.Exec(t, "INSERT INTO outbox_"+typ+" (topic, key, payload) VALUES ('orders', '7', '{}')")
		if got := pgtest.One[string](t, db, "SELECT pg_typeof(payload)::text FROM outbox_"+typ); got != typ {
			t.Errorf("payload is %s", got)
		}
	}
}

func TestInitLeavesWhatExistsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	ctx := context.Background()
	exec(t, conn, `CREATE SCHEMA shop; SET search_path = shop`)
	for range 2 {
		if err := Init(ctx, conn, DDLOptions{Table: "outbox"}); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `ALTER TABLE shop.outbox SET (autovacuum_vacuum_threshold = 7); DROP INDEX IF EXISTS shop.outbox_dead`)
	}
	if got := pgtest.One[string](t, db, `SELECT array_to_string(reloptions, ',') FROM pg_class WHERE oid = 'shop.outbox'::regclass`); !strings.Contains(got, "threshold=7") {
		t.Errorf("options %s", got)
	}
	// Somebody who owns nothing runs it: nothing is to be done, so nothing fails.
	if err := Init(ctx, conn, DDLOptions{Table: "outbox"}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE ROLE nobody_of_init; SET ROLE nobody_of_init`)
	if err := Init(ctx, conn, DDLOptions{Table: "shop.outbox"}); err != nil {
		t.Error(err)
	}
	exec(t, conn, `RESET ROLE; DROP ROLE nobody_of_init`)
	if got := pgtest.One[int](t, db, `SELECT count(*)::int FROM pg_indexes WHERE schemaname = 'shop'`); got != 3 {
		t.Errorf("%d indexes", got)
	}
}

func TestInitWantsTheSchema(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	err := Init(context.Background(), conn, DDLOptions{Table: `"My Shop".outbox`})
	if err == nil || !strings.Contains(err.Error(), `run: CREATE SCHEMA "My Shop";`) {
		t.Errorf("error %v", err)
	}
}

func TestManyInitsAtOnceDontFail(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var g errgroup.Group
	start := make(chan struct{})
	for range 8 {
		conn := db.Connect(t)
		g.Go(func() error {
			<-start
			return Init(context.Background(), conn, DDLOptions{Table: "outbox"})
		})
	}
	close(start)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestLongIndexNamesStayApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, table := range []string{strings.Repeat("x", 63), strings.Repeat("x", 62) + "y", strings.Repeat("é", 31), strings.Repeat("é", 30) + "xy", "outbox"} {
		for _, suffix := range []string{"pending", "dead"} {
			name := indexName(table, suffix)
			if seen[name] || len(name) > maxName || strings.ToValidUTF8(name, "") != name || !strings.HasSuffix(name, "_"+suffix) {
				t.Errorf("%s of %s: %s", suffix, table, name)
			}
			seen[name] = true
		}
	}
}
