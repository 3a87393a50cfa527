package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

const toStdout = "sink: {kind: stdout}"

// start makes the table and a relay on it, and waits until it is LIVE.
func start(t *testing.T, s settings) (*pgtest.DB, *instance) {
	t.Helper()
	db := pgtest.Database(t)
	config, addr := configFile(t, db, s)
	initialise(t, config)
	r := launch(t, config, addr, s.env...)
	r.awaitMode("LIVE")
	return db, r
}

// psql runs statements as an operator would.
func psql(t *testing.T, db *pgtest.DB, script string) {
	t.Helper()
	cmd := exec.Command("psql", "-X", "-v", "ON_ERROR_STOP=1", "-q", "-d", db.DSN)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// expect waits until that many events are out, and gives the relay a poll's time to send one too many.
func (r *instance) expect(n int) []line {
	r.t.Helper()
	pgtest.Eventually(r.t, 60*time.Second, fmt.Sprintf("%d events", n), func() (bool, error) { return len(r.events()) >= n, nil })
	return r.events()
}

func payloads(lines []line) (out []string) {
	for _, l := range lines {
		out = append(out, string(l.Payload))
	}
	return out
}

func TestG1G2RowsOfEveryKindOfInsertComeOutOnceInCommitOrderAndArePublished(t *testing.T) {
	t.Parallel()
	db, r := start(t, settings{yaml: toStdout, env: []string{"CDC_RELAY_FALLBACK_POLL_INTERVAL=1s"}})
	psql(t, db, `
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '1');
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '2'), ('orders', 'a', '3');
BEGIN; INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '"rolled back"'); ROLLBACK;
COPY outbox (topic, key, payload) FROM stdin;
orders	a	4
orders	a	5
\.
BEGIN;
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '6');
SAVEPOINT s;
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '"rolled back to a savepoint"');
ROLLBACK TO SAVEPOINT s;
SAVEPOINT u;
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '7');
RELEASE SAVEPOINT u;
COMMIT;
INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '8');
`)
	r.expect(8)
	settledRows(t, db, 10*time.Second)
	polls := r.metric("cdc_relay_fallback_polls_total")
	pgtest.Eventually(t, 20*time.Second, "two polls more", func() (bool, error) {
		return r.metric("cdc_relay_fallback_polls_total") >= polls+2, nil
	})
	got := r.events()
	if !slices.Equal(payloads(got), []string{"1", "2", "3", "4", "5", "6", "7", "8"}) {
		t.Errorf("got %v", payloads(got))
	}
	for _, l := range got {
		if l.Path != "wal" || l.Topic != "orders" || l.Key == nil || *l.Key != "a" {
			t.Errorf("got %+v", l)
		}
	}
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND published_at IS NOT NULL`); n != 8 {
		t.Errorf("%d rows are PUBLISHED", n)
	}
	t.Logf("commit to PUBLISHED, slowest: %v", pgtest.One[time.Duration](t, db, `SELECT max(published_at - created_at) FROM outbox`))
	if rescued := r.metric("cdc_relay_fallback_rescued_total"); rescued != 0 {
		t.Errorf("%v rows were rescued", rescued)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestG1WithoutLogicalReplicationTheRelayPollsAndSaysSo(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	db := cluster.Database(t)
	config, addr := configFile(t, db, settings{yaml: toStdout})
	out, errs, code := command(t, nil, "init", "-c", config)
	t.Logf("init: %d\n%s%s", code, out, errs)
	r := launch(t, config, addr, "CDC_RELAY_FALLBACK_POLL_INTERVAL=500ms")
	r.awaitMode("POLLING")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', 'a', to_json(i) FROM generate_series(1, 5) i`)
	if got := payloads(r.expect(5)); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("got %v", got)
	}
	settledRows(t, db, 10*time.Second)
	s, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Stream.Up || !strings.Contains(s.Stream.Reason, "wal_level") {
		t.Errorf("status says of the stream: %+v", s.Stream)
	}
	code, body, err := r.get("/readyz")
	if err != nil || code != 200 || !strings.Contains(string(body), "wal_level") {
		t.Errorf("/readyz: %d %s %v", code, body, err)
	}
	told := 0
	for l := range strings.Lines(r.log()) {
		if strings.Contains(l, "wal_level") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d lines of the log tell of wal_level", told)
	}
	out, _, code = command(t, nil, "check", "-c", config)
	if code != 0 || !strings.Contains(out, "wal_level") {
		t.Errorf("check: exit code %d (the relay can run)\n%s", code, out)
	}
	out, _, _ = command(t, nil, "status", "-c", config)
	if !strings.Contains(out, "POLLING") {
		t.Errorf("status:\n%s", out)
	}
}

// The row whose transaction began first commits last: a poller that remembers the highest id would never see it.
func TestCase29_ARowWithALowIDThatCommitsLateIsDelivered(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		t.Run("replication.enabled "+stream, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			config, addr := configFile(t, db, settings{yaml: toStdout, repl: "enabled: " + stream})
			initialise(t, config)
			r := launch(t, config, addr, "CDC_RELAY_FALLBACK_POLL_INTERVAL=200ms")
			r.awaitMode(map[string]string{"true": "LIVE", "false": "POLLING"}[stream])
			conn := db.Connect(t)
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'late', '"late"')`); err != nil {
				t.Fatal(err)
			}
			db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', 'a', to_json(i) FROM generate_series(1, 50) i`)
			r.expect(50)
			polls := r.metric("cdc_relay_fallback_polls_total")
			pgtest.Eventually(t, 20*time.Second, "several polls", func() (bool, error) {
				return r.metric("cdc_relay_fallback_polls_total") >= polls+4, nil
			})
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := r.expect(51)
			if got[50].ID != 1 {
				t.Errorf("the last event is row %d", got[50].ID)
			}
			settledRows(t, db, 10*time.Second)
		})
	}
}

// The clock of the relay's machine decides nothing; only the database's does. (Case 15 needs the same of every statement.)
func TestRowsInsertedBeforeTheStartAreDeliveredByThePollInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	config, addr := configFile(t, db, settings{yaml: toStdout})
	initialise(t, config)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', (i % 7)::text, to_json(i) FROM generate_series(1, 5000) i`)
	r := launch(t, config, addr)
	got := r.expect(5000)
	last := map[string]int64{}
	for _, l := range got {
		if l.Path != "poll" {
			t.Fatalf("row %d came by %s", l.ID, l.Path)
		}
		if l.ID <= last[*l.Key] {
			t.Fatalf("row %d after %d of key %s", l.ID, last[*l.Key], *l.Key)
		}
		last[*l.Key] = l.ID
	}
	r.awaitMode("LIVE")
	settledRows(t, db, 10*time.Second)
	if len(r.events()) != 5000 {
		t.Errorf("%d events for 5000 rows", len(r.events()))
	}
}
