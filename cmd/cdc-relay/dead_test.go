package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// Both commands have read the row as DEAD when the first of them may change it.
func TestCase26_OfTwoRetryCommandsTheSecondIsToldThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	env := []string{"CDC_RELAY_POSTGRES_DSN=" + db.DSN, "CDC_RELAY_HTTP_LISTEN=off", "CDC_RELAY_REPLICATION_ENABLED=false"}
	prepare := exec.CommandContext(t.Context(), "cdc-relay", "init") // this binary: see TestMain
	prepare.Env = env
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) VALUES ('orders', 'k', '1', 'DEAD')`)
	holder := db.Connect(t)
	if _, err := holder.Exec(t.Context(), `BEGIN; SELECT 1 FROM outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var out [2]bytes.Buffer
	var running [2]*exec.Cmd
	for i := range running {
		running[i] = exec.CommandContext(t.Context(), "cdc-relay", "dead", "retry", "--topic", "orders", "--reason", "case 26")
		running[i].Env, running[i].Stdout, running[i].Stderr = env, &out[i], &out[i]
		if err := running[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Eventually(t, 20*time.Second, "both commands wait for the row", func() bool {
		return pgtest.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	var told []string
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, &out[i])
		}
		told = append(told, strings.TrimSpace(out[i].String()))
	}
	slices.Sort(told)
	if told[0] != "nothing was left to do: no such row is in that state (any more)" || told[1] != "retried 1 row" {
		t.Errorf("the operators were told %q", told)
	}
	if deeds := pgtest.All[string](t, db, `SELECT command || ' ' || ids[1] FROM cdc_relay_audit`); !slices.Equal(deeds, []string{"dead retry 1"}) {
		t.Errorf("the audit trail has %q", deeds)
	}
}
