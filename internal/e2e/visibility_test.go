package e2e

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// With a synchronous standby that does not answer, a commit is in the WAL, and comes by the stream, before any session can
// see it. Its mark finds no row, for as long as that lasts.
func TestCase14_AnEventIsMarkedWhenItsRowBecomesVisibleHoweverLongThatTakes(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, pgtest.Options{})
	db := cluster.Database(t)
	config, addr := configFile(t, db, settings{yaml: toStdout})
	initialise(t, config)
	r := launch(t, config, addr, "CDC_RELAY_FALLBACK_POLL_INTERVAL=500ms")
	r.awaitMode("LIVE")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '1')`)
	r.expect(1)
	settledRows(t, db, time.Minute)

	conn := db.Connect(t)
	pid := conn.PgConn().PID()
	if err := cluster.Set(t.Context(), "synchronous_standby_names", "ghost"); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, time.Minute, "the setting", func() bool {
		return pgtest.One[string](t, db, `SHOW synchronous_standby_names`) == "ghost"
	})
	inserted := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', '2')`)
		inserted <- err
	}()
	pgtest.Eventually(t, time.Minute, "the commit to wait for the standby", func() bool {
		return pgtest.One[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'`, pid) == 1
	})
	r.expect(2)
	pgtest.Eventually(t, time.Minute, "several marks that find no row", func() bool { return r.metric("cdc_relay_mark_retries_total") >= 5 })
	polls := r.metric("cdc_relay_fallback_polls_total")
	pgtest.Eventually(t, time.Minute, "polls that find no row", func() bool { return r.metric("cdc_relay_fallback_polls_total") >= polls+3 })
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox`); n != 1 {
		t.Errorf("%d rows are visible", n)
	}
	if n := r.metric("cdc_relay_in_flight_events"); n != 1 {
		t.Errorf("%v events are in flight", n)
	}

	if err := cluster.Set(t.Context(), "synchronous_standby_names", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-inserted; err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, time.Minute, "both rows to be PUBLISHED", func() bool {
		return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) == 2
	})
	polls = r.metric("cdc_relay_fallback_polls_total")
	pgtest.Eventually(t, time.Minute, "two polls more", func() bool { return r.metric("cdc_relay_fallback_polls_total") >= polls+2 })
	if n := len(r.events()); n != 2 {
		t.Errorf("%d events for 2 rows", n)
	}
	if n := pgtest.One[int](t, db, `SELECT sum(attempts) FROM outbox`); n != 0 {
		t.Errorf("%d attempts were counted", n)
	}
	if n := r.metric("cdc_relay_gone_rows_total"); n != 0 {
		t.Errorf("%v rows were taken for deleted", n)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
