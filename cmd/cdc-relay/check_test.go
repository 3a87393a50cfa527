package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestCase34_CheckNamesWhoHoldsBackVacuum(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn, pool := db.Connect(t), db.Pool(t)
	if _, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		t.Fatal(err)
	}
	pid := conn.PgConn().PID()
	held := func(f preflight.Finding) bool {
		return f.Severity == preflight.Warning && strings.Contains(f.Detail, fmt.Sprintf("pid %d ", pid)) &&
			f.Remedy == fmt.Sprintf("SELECT pg_terminate_backend(%d);", pid)
	}
	// Other tests have transactions too, and only the oldest three are named.
	pgtest.Eventually(t, 10*time.Second, "the open transaction is named", func() bool {
		return slices.ContainsFunc(checkHorizon(t.Context(), pool, 0), held)
	})
	if found := checkHorizon(t.Context(), pool, longTransaction); len(found) != 1 || found[0].Severity != preflight.OK {
		t.Errorf("a young transaction is a finding: %+v", found)
	}
}

func TestTheTopicsOfRecentRowsAreKnownWithoutTheirPayloads(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
		type text NOT NULL, payload jsonb, status text NOT NULL DEFAULT 'PENDING', created_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO events (aggregatetype, aggregateid, type, payload)
		SELECT CASE i % 2 WHEN 0 THEN 'order' ELSE 'bill' END, i, 'Created', '{}' FROM generate_series(1, 10) i`)
	pool := db.Pool(t)
	cfg, err := config.Load("", []string{"CDC_RELAY_POSTGRES_DSN=" + db.DSN, "CDC_RELAY_OUTBOXES=[{table: events, preset: debezium}]"})
	if err != nil {
		t.Fatal(err)
	}
	outboxes, err := resolve(t.Context(), pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := outboxes[0]
	if o.Col(table.Key) != `"aggregateid"` || o.Col(table.MessageID) != `"id"` || o.Col(table.EventType) != `"type"` {
		t.Errorf("the preset maps key to %s, message_id to %s, event_type to %s", o.Col(table.Key), o.Col(table.MessageID), o.Col(table.EventType))
	}
	topics, err := recentTopics(t.Context(), pool, o)
	if diff := cmp.Diff([]string{"outbox.event.bill", "outbox.event.order"}, topics); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestASignalEndsAWatchAsAsked(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload text, status text NOT NULL DEFAULT 'PENDING')")
	cmd := exec.CommandContext(t.Context(), "cdc-relay", "status", "--watch") // this binary: see TestMain
	cmd.Env = []string{"CDC_RELAY_POSTGRES_DSN=" + db.DSN, "CDC_RELAY_HTTP_LISTEN=off", "CDC_RELAY_REPLICATION_ENABLED=false"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "relay") {
		t.Errorf("the first line is %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the watch ended with %v, want exit code 0", err)
	}
}
