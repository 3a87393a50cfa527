package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// binary runs the tests; in a script, cdc-relay is this test binary as the program.
type binary struct{ m *testing.M }

func (b binary) Run() int { return pgtest.Run(b.m) }

func TestMain(m *testing.M) {
	testscript.Main(binary{m}, map[string]func(){"cdc-relay": main})
}

// TestScript runs each file of testdata/script with a database, slot and publication of its own. Beside testscript's
// commands there are
//
//	exits CODE cdc-relay ARGS...   which wants exactly this exit code
//	sql STATEMENT...               which runs SQL as superuser, with ` for each '; stdout has the values of the rows, with
//	                               | between
func TestScript(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(env *testscript.Env) error {
					env.Vars = append(env.Vars,
						"DSN="+db.DSN, "NOWHERE_DSN="+db.Cluster.DSN("nowhere"), "ROLE=role_"+db.Name, "ROLE_DSN="+db.DSNAs("role_"+db.Name),
						"SLOT="+db.Slot, "PUBLICATION="+db.Publication,
						"CDC_RELAY_POSTGRES_DSN="+db.DSN, "CDC_RELAY_REPLICATION_SLOT="+db.Slot,
						"CDC_RELAY_REPLICATION_PUBLICATION="+db.Publication,
						"CDC_RELAY_SINK_KIND=discard", "CDC_RELAY_HTTP_LISTEN=off",
						"GOCOVERDIR="+os.Getenv("GOCOVERDIR"))
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "sql": sql},
			})
		})
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == want, err == nil && want == 0:
	default:
		ts.Fatalf("want exit code %d: %v", want, err)
	}
}

func sql(ts *testscript.TestScript, neg bool, args []string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, ts.Getenv("DSN"))
	ts.Check(err)
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, strings.ReplaceAll(strings.Join(args, " "), "`", "'")).ReadAll()
	if (err != nil) != neg {
		ts.Fatalf("sql: %v", err)
	}
	var out strings.Builder
	for _, r := range results {
		for _, row := range r.Rows {
			out.WriteString(strings.Join(words(row), "|") + "\n")
		}
	}
	_, err = ts.Stdout().Write([]byte(out.String()))
	ts.Check(err)
}

func words(row [][]byte) []string {
	out := make([]string, len(row))
	for i, v := range row {
		out[i] = string(v)
	}
	return out
}
