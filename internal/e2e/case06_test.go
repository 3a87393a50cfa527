package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// pair is a primary with the table, and a standby of it.
func pair(t *testing.T) (primary, standby *pgtest.Cluster, db *pgtest.DB) {
	t.Helper()
	primary = pgtest.NewCluster(t, pgtest.Options{})
	db = primary.Database(t)
	config, _ := configFile(t, db, settings{yaml: toStdout})
	initialise(t, config)
	standby = pgtest.NewStandby(t, primary, "standby_a")
	streams(t, db)
	return primary, standby, db
}

const lines = `INSERT INTO outbox (topic, key, payload) SELECT 'orders', 'a', to_json(i) FROM generate_series(1, 50) i`

func TestCase06_AStandbyNamedFirstIsPassedOver(t *testing.T) {
	t.Parallel()
	primary, standby, db := pair(t)
	config, addr := configFile(t, db, settings{yaml: toStdout, dsn: hosts(db, "", standby, primary)})
	r := launch(t, config, addr)
	r.awaitMode("LIVE")
	db.Exec(t, lines)
	r.expect(50)
	settledRows(t, db, time.Minute)
	if out, errs, code := command(t, nil, "check", "-c", config); code != 0 {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
}

func TestCase06_AStandbyAloneMakesTheRelayUnreadyUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	primary, standby, db := pair(t)
	there := db.On(t, standby)
	config, addr := configFile(t, there, settings{yaml: toStdout})
	r := launch(t, config, addr)
	unready := func() (bool, error) {
		code, reasons, err := r.readiness()
		return code == 503 && strings.Contains(strings.Join(reasons, " "), "no host of the DSN is a primary that accepts writes"), err
	}
	pgtest.Eventually(t, time.Minute, "the relay to say that it is not ready and why", unready)
	db.Exec(t, lines)
	pgtest.Eventually(t, time.Minute, "the rows on the standby", func() bool {
		return pgtest.One[int](t, there, `SELECT count(*) FROM outbox`) == 50
	})
	if ok, err := unready(); !ok || err != nil || len(r.events()) > 0 {
		t.Errorf("ready on a standby: %v %v, %d events", ok, err, len(r.events()))
	}
	if told := strings.Count(r.log(), "standing by"); told != 1 {
		t.Errorf("%d lines of the log tell of it", told)
	}
	out, errs, code := command(t, nil, "check", "-c", config)
	if code != 1 || !strings.Contains(out+errs, "standby") {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
	if err := primary.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitMode("LIVE")
	r.expect(50)
	settledRows(t, there, time.Minute)
	pgtest.Eventually(t, time.Minute, "the relay to be ready", func() (bool, error) {
		code, _, err := r.readiness()
		return code == 200, err
	})
}

// A primary that takes no writes any more keeps its sessions.
func TestCase06_ADemotedPrimaryIsLeftForTheNextHost(t *testing.T) {
	t.Parallel()
	primary, standby, db := pair(t)
	config, addr := configFile(t, db, settings{yaml: toStdout, dsn: hosts(db, "", primary, standby)})
	r := launch(t, config, addr)
	r.awaitMode("LIVE")
	db.Exec(t, lines)
	r.expect(50)
	settledRows(t, db, time.Minute)
	there := db.On(t, standby)
	pgtest.Eventually(t, time.Minute, "the marks on the standby", func() bool {
		return pgtest.One[int](t, there, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) == 50
	})
	if err := primary.Set(t.Context(), "default_transaction_read_only", "on"); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	there.Exec(t, lines)
	got := r.expect(100)
	settledRows(t, there, time.Minute)
	pgtest.Eventually(t, time.Minute, "a stream from the new primary", func() bool {
		return pgtest.One[int](t, there, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active", db.Slot) == 1
	})
	r.awaitMode("LIVE")
	if len(got) != 100 {
		t.Errorf("%d events", len(got))
	}
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cdc-relay%'`); n != 0 {
		t.Errorf("%d connections to the demoted primary are left", n)
	}
	if err := primary.Stop("immediate"); err != nil { // it would refuse to drop the database
		t.Error(err)
	}
}
