package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// kill ends the walsender of the fixture's slot.
func (f *fixture) kill(t *testing.T) {
	t.Helper()
	f.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
}

// dropSlot drops the slot under the running stream.
func (f *fixture) dropSlot(t *testing.T) {
	t.Helper()
	conn := f.Connect(t)
	pgtest.Eventually(t, patience, "the slot is dropped", func() error {
		f.kill(t)
		_, err := conn.Exec(context.Background(), `SELECT pg_drop_replication_slot($1)`, f.Slot)
		return err
	})
}

func (f *fixture) recreations(t *testing.T) int {
	t.Helper()
	got := f.metric(t, "cdc_relay_slot_recreated_total")
	if n := f.stream.State().SlotRecreated; float64(n) != got {
		t.Errorf("state has %d recreated slots, the metric %v", n, got)
	}
	return int(got)
}

func TestCase08_AStreamThatIsTerminatedComesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	f.insert(t, "one")
	f.has(t, "one")
	f.kill(t)
	f.up(t, 2)
	f.insert(t, "two")
	f.has(t, "one", "two")
	if n := f.recreations(t); n != 0 {
		t.Errorf("%d slots recreated", n)
	}
	if got := f.metric(t, "cdc_relay_stream_reconnects_total"); got != 1 || f.stream.State().Reconnects != 1 {
		t.Errorf("%v reconnects", got)
	}
	if err := f.recv.lastLost(); sqlState(err) != "57P01" {
		t.Errorf("lost: %v", err)
	}
}

func TestCase04_ASlotDroppedBySomebodyIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	f.dropSlot(t)
	f.up(t, 2)
	f.insert(t, "on the new slot")
	pgtest.Eventually(t, patience, "the event", func() bool { return f.recv.count() == 1 })
	if n := f.recreations(t); n != 1 {
		t.Errorf("%d slots recreated", n)
	}
	if !strings.Contains(f.log.String(), `level=WARN msg="replication slot recreated"`) {
		t.Error("no warning")
	}
}

func TestCase03_AnInvalidatedSlotIsReplaced(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB",
	}})
	f := newFixture(t, c.Database(t))
	stop := f.run(t)
	f.up(t, 1)
	stop()
	pgtest.Eventually(t, patience, "an invalidated slot", func() bool {
		f.Exec(t, `SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 8)`)
		f.Exec(t, `SELECT pg_switch_wal()`)
		f.Exec(t, `CHECKPOINT`)
		return pgtest.One[bool](t, f.DB, `SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
	})
	figures, err := SampleSlot(context.Background(), f.Pool(t), f.Slot, nil)
	if err != nil || figures.WALStatus != "lost" || !figures.Exists {
		t.Errorf("figures %+v, %v", figures, err)
	}

	f.cfg.Create = false
	again := &fixture{DB: f.DB, cfg: f.cfg, outboxes: f.outboxes, recv: &recorder{}, log: f.log, registry: prometheus.NewRegistry()}
	stop = again.run(t)
	again.reason(t, "invalidated: wal_removed", "pg_drop_replication_slot", "pg_create_logical_replication_slot")
	stop()

	again.cfg.Create = true
	again.registry = prometheus.NewRegistry()
	again.run(t)
	again.up(t, 1)
	f.insert(t, "on the new slot")
	again.has(t, "on the new slot")
	if n := again.recreations(t); n != 1 {
		t.Errorf("%d slots recreated", n)
	}
	if n := strings.Count(f.log.String(), "replication slot recreated"); n != 1 {
		t.Errorf("%d log lines", n)
	}
}

func TestCase05_AMissingPublicationIsSaidWithItsSQLAndWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.cfg.Create = false
	f.run(t)
	sql := `CREATE PUBLICATION "` + f.Publication + `" FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true);`
	f.reason(t, "no publication", sql)
	f.Exec(t, sql)
	create := `SELECT pg_create_logical_replication_slot('` + f.Slot + `', 'pgoutput');`
	f.reason(t, "no slot", create)
	f.Exec(t, create)
	f.up(t, 1)
	f.insert(t, "one")
	f.has(t, "one")
	f.recv.mu.Lock()
	defer f.recv.mu.Unlock()
	if got := strings.Join(f.recv.calls, " "); got != "Connecting Started" {
		t.Errorf("the receiver was bothered: %s", got)
	}
}

func TestCase05_ASlotOlderThanItsPublicationIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, f.Slot)
	f.insert(t, "can't be decoded: its time knows no publication")
	f.run(t)
	f.up(t, 1)
	f.insert(t, "one")
	f.has(t, "one")
	if n := f.recreations(t); n != 1 {
		t.Errorf("%d slots recreated", n)
	}
}

func TestCase05_ATransactionOlderThanThePublicationEndsTheStreamOnlyOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, f.Slot)
	tx := f.begin(t)
	_, err := tx.Exec(context.Background(), insertRow, "the poll's")
	do(t, err)
	f.Exec(t, createPublication(f.Publication, []string{"outbox"}))
	f.run(t)
	f.up(t, 1)
	do(t, tx.Commit(context.Background()))
	f.up(t, 2)
	f.insert(t, "the stream's")
	f.has(t, "the stream's")
	if n := f.recreations(t); n != 1 || f.recv.starts() != 2 {
		t.Errorf("%d slots recreated, %d starts", n, f.recv.starts())
	}
}

func TestCase05_APublicationDroppedUnderTheStreamIsCreatedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	f.Exec(t, "DROP PUBLICATION "+f.Publication)
	f.insert(t, "the poll's") // ends the stream: by an error up to version 17, by a notice from 18 on
	f.up(t, 2)
	f.insert(t, "the stream's")
	f.has(t, "the stream's")
	if n := f.recreations(t); n != 1 {
		t.Errorf("%d slots recreated", n)
	}
}

func TestCase05_ATableRemovedFromThePublicationIsNoticed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	pool := f.Pool(t)
	ctx := context.Background()
	if _, err := f.stream.Sample(ctx, pool); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, `CREATE TABLE other (); ALTER PUBLICATION `+f.Publication+` SET TABLE other`)
	if _, err := f.stream.Sample(ctx, pool); err != nil {
		t.Fatal(err)
	}
	f.up(t, 2)
	f.insert(t, "one")
	f.has(t, "one")
}

func TestSlotCreationThatWaitsForATransactionIsSaidAndRetried(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{}) // an open transaction holds up all slots of a cluster
	f := newFixture(t, c.Database(t))
	ctx := context.Background()
	tx := f.begin(t)
	_, err := tx.Exec(ctx, `SET LOCAL application_name = 'month end'`)
	do(t, err)
	_, err = tx.Exec(ctx, insertRow, "open")
	do(t, err)
	f.run(t)
	f.reason(t, "waits for open transactions", fmt.Sprintf("pid %d", tx.Conn().PgConn().PID()), "month end")
	do(t, tx.Commit(ctx))
	f.up(t, 1)
	f.insert(t, "one")
	pgtest.Eventually(t, patience, "the event", func() bool { return f.recv.count() == 1 })
}

func TestSlotCreationThatWaitsEndsWithRun(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := newFixture(t, c.Database(t))
	ctx := context.Background()
	prepared := f.begin(t)
	_, err := prepared.Exec(ctx, insertRow, "open")
	do(t, err)
	_, err = prepared.Exec(ctx, `PREPARE TRANSACTION 'forgotten'`)
	do(t, err)
	stop := f.run(t)
	f.reason(t, `prepared transaction "forgotten"`)
	pgtest.Eventually(t, patience, "a creation under way", func() bool {
		return pgtest.One[int](t, f.DB, `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'cdc-relay'`) > 0
	})
	stop()
	f.Exec(t, `ROLLBACK PREPARED 'forgotten'`)
}

func TestCase10_ASlotInUseIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	stop := f.run(t)
	f.up(t, 1)
	second := &fixture{DB: f.DB, cfg: f.cfg, outboxes: f.outboxes, recv: &recorder{}, log: f.log, registry: prometheus.NewRegistry()}
	second.cfg.DSN += "&application_name=another"
	second.run(t)
	pid := pgtest.One[int32](t, f.DB, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
	second.reason(t, fmt.Sprintf("pid %d", pid), `"cdc-relay"`)
	pgtest.Eventually(t, patience, "several attempts", func() bool { return time.Since(second.stream.State().Since) > takeoverAfter+3*time.Second })
	if f.recv.lastLost() != nil {
		t.Error("the walsender of another name was ended")
	}
	stop()
	second.up(t, 1)
}

func TestCase10_AStaleWalsenderOfOurOwnIsEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	// What a cut connection leaves behind: a walsender that nobody listens to.
	next := &fixture{DB: f.DB, cfg: f.cfg, outboxes: f.outboxes, recv: &recorder{}, log: f.log, registry: prometheus.NewRegistry()}
	next.run(t)
	next.up(t, 1)
	if err := f.recv.lastLost(); sqlState(err) != "57P01" {
		t.Errorf("the first stream ended with %v", err)
	}
}

func TestCase09_AFastShutdownDoesNotWait(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := newFixture(t, c.Database(t))
	f.run(t)
	f.up(t, 1)
	for round := range 3 {
		f.Exec(t, `INSERT INTO outbox (topic, payload) SELECT 't', repeat('x', 1000) FROM generate_series(1, 2000)`)
		begun := time.Now()
		if err := c.Stop("fast"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.up(t, round+2)
	}
	f.recv.mu.Lock()
	n := len(f.recv.events)
	f.recv.mu.Unlock()
	f.insert(t, "afterwards")
	pgtest.Eventually(t, patience, "the event", func() bool { return f.recv.count() > n })
}

func TestCase06_AStandbyIsPassedOverAndSaid(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	standby := pgtest.NewStandby(t, c, "standby")
	f := newFixture(t, c.Database(t))
	primary := f.cfg.DSN
	f.cfg.DSN = standby.DSN(f.Name)
	pgtest.Eventually(t, patience, "the standby has the database", func() error {
		conn, err := pgx.Connect(context.Background(), f.cfg.DSN)
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err
	})
	stop := f.run(t)
	f.reason(t, "standby", "let the DSN name the primary")
	stop()

	cc, err := pgx.ParseConfig(primary)
	do(t, err)
	for _, attrs := range []string{"", " target_session_attrs=read-write", " target_session_attrs=any"} {
		both := &fixture{DB: f.DB, cfg: f.cfg, outboxes: f.outboxes, recv: &recorder{}, log: f.log, registry: prometheus.NewRegistry()}
		both.cfg.DSN = fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres sslmode=disable dbname=%s%s", standby.Port(), cc.Port, f.Name, attrs)
		stop = both.run(t)
		both.up(t, 1)
		stop()
	}
}

func TestWALLevelReplicaIsSaid(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	f := newFixture(t, c.Database(t))
	f.run(t)
	f.reason(t, "wal_level is replica", "set wal_level = logical")
	if n := strings.Count(f.log.String(), "no replication stream"); n != 1 {
		t.Errorf("%d log lines", n)
	}
	if err := c.Set(context.Background(), "wal_level", "logical"); err != nil {
		t.Fatal(err)
	}
	do(t, c.Restart(context.Background()))
	f.up(t, 1)
}

func TestG9_LeastPrivilegeAndItsLackAreSaid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	role := "plain_" + f.Name
	f.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'hunter2'")
	t.Cleanup(func() { pgtest.Shared(t).Database(t).Exec(t, "DROP ROLE "+role) })
	f.cfg.DSN = strings.Replace(f.DSNAs(role), role+"@", role+":hunter2@", 1)
	f.run(t)
	f.reason(t, "privilege", `ALTER ROLE "`+role+`" REPLICATION;`)
	if got := f.stream.State().SQLState; got != codeInsufficientPrivilege {
		t.Errorf("SQLSTATE %s", got)
	}
	f.Exec(t, "ALTER ROLE "+role+" REPLICATION")
	f.reason(t, "as the owner of the tables: CREATE PUBLICATION")
	f.Exec(t, createPublication(f.Publication, []string{"outbox"}))
	f.up(t, 1)
	f.insert(t, "without any privilege on the table")
	f.has(t, "without any privilege on the table")
	if strings.Contains(f.log.String(), "hunter2") {
		t.Error("the password is in the log")
	}
}

func TestG9_ABadDSNIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:hunter2@h:port/db", "host=h password=hunter2 sslmode=nonsense", "postgres://u:hunter2@h/db?target_session_attrs=x"} {
		err := Config{DSN: dsn, Slot: "s", Publication: "p"}.Validate()
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestASlotOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, `SELECT pg_create_physical_replication_slot($1)`, f.Slot)
	t.Cleanup(func() { f.Exec(t, `SELECT pg_drop_replication_slot($1)`, f.Slot) })
	stop := f.run(t)
	f.reason(t, "physical", "another name")
	if !f.slotExists(t) {
		t.Error("it was dropped")
	}
	stop()

	here := newFixture(t, pgtest.Database(t))
	there := pgtest.Database(t)
	here.Exec(t, `SELECT 1`)
	there.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, here.Slot)
	here.run(t)
	here.reason(t, "belongs to database "+there.Name)
}

func TestACrashedServerNeverMissesTheStreamsNewRows(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	f := newFixture(t, c.Database(t))
	f.run(t)
	f.up(t, 1)
	f.Exec(t, `SET synchronous_commit = off; INSERT INTO outbox (topic, payload) SELECT 't', '' FROM generate_series(1, 1000)`)
	do(t, c.Stop("immediate"))
	do(t, c.Start(context.Background()))
	f.up(t, 2)
	if confirmed, end := f.lsn(t, `SELECT confirmed_flush_lsn FROM pg_replication_slots`), f.lsn(t, `SELECT pg_current_wal_insert_lsn()`); confirmed > end {
		t.Errorf("confirmed %v of %v", confirmed, end)
	}
	n := f.recv.count()
	f.insert(t, "after the crash")
	pgtest.Eventually(t, patience, "the event", func() bool { return f.recv.count() > n })
}

func TestExplainKeepsTheCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	c := explain(Config{}, fmt.Errorf("deed: %w", cause))
	if !errors.Is(c, cause) || !strings.Contains(c.Error(), "deed: cause") {
		t.Errorf("%v", c)
	}
	if got := (server{blockSize: 8192, segmentSize: 16 << 20}); got.recordStart(pglogrepl.LSN(8192)) != 8192+24 ||
		got.recordStart(pglogrepl.LSN(16<<20)) != 16<<20+40 || got.recordStart(8200) != 8200 {
		t.Error("the first record of a page")
	}
}

func TestAFailoverSlotIsMadeFromVersion17OnAndItsSuccessorIsOneToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{Version: "17"}).Database(t))
	f.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, f.Slot)
	failover := func() bool {
		return pgtest.One[bool](t, f.DB, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
	}
	f.cfg.Failover = true
	stop := f.run(t)
	f.up(t, 1)
	if !failover() {
		t.Error("the slot that was there has not been replaced")
	}
	stop()
	// Whoever made it a failover slot wants it to stay one.
	f.cfg.Failover = false
	if _, err := EnsureSlot(t.Context(), f.cfg, true); err != nil || !failover() {
		t.Errorf("recreated: failover %v, %v", failover(), err)
	}
}

func TestAFailoverSlotIsRefusedWithWhatToSetBeforeVersion17(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{Version: "16"}).Database(t))
	f.cfg.Failover = true
	f.run(t)
	f.reason(t, "version 17", "set replication.failover: false")
	f.cfg.Temporary = true
	if err := f.cfg.Validate(); err == nil {
		t.Error("a temporary failover slot passes")
	}
}
