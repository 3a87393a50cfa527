package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// From version 17 on a slot can be there on the standby already. The relay uses it as it is.
func TestG1G3_AfterAFailoverWithAFailoverSlotTheRelayUsesIt(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.Options{Version: "17", Settings: map[string]string{"hot_standby_feedback": "on"}})
	db := primary.Database(t)
	db.Exec(t, `SELECT pg_create_physical_replication_slot('standby_a', true)`)
	standby := pgtest.NewStandby(t, primary, "standby_a")
	for _, setting := range [][2]string{
		{"primary_slot_name", "standby_a"},
		{"primary_conninfo", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=standby_a dbname=postgres", primary.Port())},
		{"sync_replication_slots", "on"}, // last: after an error the worker tries again only a minute later
	} {
		if err := standby.Set(t.Context(), setting[0], setting[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := primary.Set(t.Context(), "synchronized_standby_slots", "standby_a"); err != nil {
		t.Fatal(err)
	}
	streams(t, db)
	config, _ := configFile(t, db, settings{yaml: toStdout, repl: "failover: true"})
	initialise(t, config)
	if !pgtest.One[bool](t, db, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, db.Slot) {
		t.Fatal("init has not made a failover slot")
	}
	f := failOver(t, primary, db, standby, func(f *failover) {
		pgtest.Eventually(t, 2*time.Minute, "the slot to be synchronised", func() bool {
			return pgtest.One[int](t, f.db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary`, db.Slot) == 1
		})
	})
	f.hold(t)
	if strings.Contains(f.relay.log(), `msg="replication slot created"`) || strings.Contains(f.relay.log(), "recreated") {
		t.Error("the relay has made a slot of its own")
	}
}
