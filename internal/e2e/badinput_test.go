package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// What can't work ends `run` with one message that says what to do, and with the exit code of its kind.
func TestRunRefusesWhatCannotWorkAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		table  string // SQL instead of init
		dsn    func(*pgtest.DB) string
		yaml   string
		code   int
		says   []string
		listen bool // somebody else has the endpoint's port
	}{
		"a port where nobody listens": {
			dsn:  func(db *pgtest.DB) string { return db.DSNVia("127.0.0.1:1") },
			code: 1, says: []string{"connect to postgres", "127.0.0.1:1", "is it running there", "postgres.dsn"},
		},
		"a database that does not exist": {
			dsn:  func(db *pgtest.DB) string { return db.Cluster.DSN("nowhere") },
			code: 1, says: []string{`"nowhere" does not exist`, "check the database in postgres.dsn"},
		},
		"a role that does not exist": {
			dsn:  func(db *pgtest.DB) string { return db.DSNAs("nobody") },
			code: 1, says: []string{`"nobody" does not exist`, "check user", "postgres.dsn"},
		},
		"no table": {
			table: "SELECT", code: 1, says: []string{"public.outbox", "cdc-relay init"},
		},
		"a table without a needed column": {
			table: "CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, body json, status text)",
			code:  1, says: []string{"public.outbox", "payload", "outboxes[0].columns"},
		},
		"a column of a type that cannot be an id": {
			table: "CREATE TABLE outbox (id text PRIMARY KEY, topic text, key text, payload json, status text)",
			code:  1, says: []string{"public.outbox", "id", "text", "uuid"},
		},
		"a view": {
			table: "CREATE VIEW outbox AS SELECT 1::bigint AS id, ''::text AS topic, ''::text AS key, '1'::json AS payload, 'PENDING' AS status",
			code:  1, says: []string{"public.outbox", "view"},
		},
		"unknown keys and bad values": {
			yaml: "dispatch: {lane: 3, max_in_flight: many}\nretry: {max: 5}\nalerts: {}\nordering: {mode: total}",
			code: 2, says: []string{
				"dispatch.lane is not a known key (did you mean dispatch.lanes?)", "dispatch.max_in_flight", "retry.max must be a duration with its unit",
				"alerts is not a known key (did you mean alert?)", "ordering.mode", "5 problems",
			},
		},
		"an unknown sink": {
			yaml: "sink: {kind: pigeon}", code: 2, says: []string{"sink.kind", "kafka", "pigeon"},
		},
		"a sink without brokers": {
			yaml: "sink: {kind: kafka, kafka: {brokers: []}}", code: 2, says: []string{"sink.kafka.brokers"},
		},
		"a sink that may reorder": {
			yaml: "sink: {kind: kafka, kafka: {idempotent: false}}", code: 2, says: []string{"idempotent", "ordering.mode"},
		},
		"a port that somebody else has": {
			listen: true, code: 1, says: []string{"http.listen", "address already in use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			s := settings{yaml: test.yaml}
			if !strings.Contains(s.yaml, "sink:") {
				s.yaml += "\n" + toStdout
			}
			config, addr := configFile(t, db, s)
			if test.table != "" {
				db.Exec(t, test.table)
			} else if test.code == 1 {
				initialise(t, config)
			}
			if test.dsn != nil {
				s.dsn = test.dsn(db)
				config, addr = configFile(t, db, s)
			}
			if test.listen {
				other, err := net.Listen("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
			}
			out, errs, code := command(t, nil, "run", "-c", config)
			if code != test.code || out != "" {
				t.Errorf("exit code %d, want %d; on stdout: %s", code, test.code, out)
			}
			for _, text := range test.says {
				if !strings.Contains(errs, text) {
					t.Errorf("the message lacks %q:\n%s", text, errs)
				}
			}
			if strings.Contains(errs, "--help") || strings.Contains(errs, "goroutine") {
				t.Errorf("the message is not only that:\n%s", errs)
			}
		})
	}
}

// A role that may read and not write: nothing could ever be marked, and each start would publish everything again.
func TestG1ARoleWithoutUpdatePublishesNothingAndIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	role := "reader_" + db.Name
	config, _ := configFile(t, db, settings{yaml: toStdout})
	initialise(t, config)
	db.Exec(t, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN; GRANT SELECT ON outbox TO %[1]s`, role))
	t.Cleanup(func() { db.Exec(t, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role)) })
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '1')`)
	config, addr := configFile(t, db, settings{yaml: toStdout, dsn: db.DSNAs(role)})
	r := launch(t, config, addr)
	grant := fmt.Sprintf(`GRANT UPDATE, DELETE ON "public"."outbox" TO %q;`, role)
	pgtest.Eventually(t, 30*time.Second, "the remedy in the log", func() bool { return strings.Contains(strings.ReplaceAll(r.log(), `\"`, `"`), grant) })
	pgtest.Eventually(t, 30*time.Second, "the remedy in /readyz", func() (bool, error) {
		code, body, err := r.get("/readyz")
		return code == 503 && strings.Contains(strings.ReplaceAll(string(body), `\"`, `"`), grant), err
	})
	if n := len(r.events()); n != 0 {
		t.Errorf("%d events were published that can't be marked", n)
	}
	db.Exec(t, grant)
	settledRows(t, db, time.Minute)
	if n := len(r.events()); n != 1 {
		t.Errorf("%d events", n)
	}
}

// A file that isn't there, and one that isn't YAML, are named.
func TestAConfigurationThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("sink: {kind: stdout\npostgres: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{missing: "no such file", broken: "broken.yaml:"} {
		_, errs, code := command(t, nil, "run", "-c", path)
		if code != 2 || !strings.Contains(errs, path) || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d\n%s", path, code, errs)
		}
	}
}
