package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// findings are one line each: severity, subject, detail, remedy.
func (f *fixture) findings(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, x := range Check(context.Background(), f.Pool(t), f.cfg, f.outboxes) {
		fmt.Fprintf(&b, "%s | %s | %s | %s\n", x.Severity, x.Subject, x.Detail, x.Remedy)
	}
	return b.String()
}

func wants(t *testing.T, got string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

func TestCheckFollowsTheSetup(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	ctx := context.Background()
	wants(t, f.findings(t),
		"ok | server version | ", "ok | wal_level | logical", "ok | privilege REPLICATION", "ok | max_wal_senders | ", "ok | max_replication_slots",
		"warning | max_slot_wal_keep_size | It is unlimited",
		"note | publication "+f.Publication+" | there is no publication", "note | slot "+f.Slot+" | It doesn't exist.")
	f.cfg.Create = false
	wants(t, f.findings(t), "warning | publication ", `CREATE PUBLICATION "`+f.Publication+`" FOR TABLE "public"."outbox"`, "warning | slot ")

	conn := f.Connect(t)
	created, err := EnsurePublication(ctx, conn, Config{Publication: f.Publication, Create: true}, f.outboxes)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	if created, err = EnsurePublication(ctx, conn, f.cfg, f.outboxes); err != nil || created {
		t.Fatalf("again: created %v, %v", created, err)
	}
	if _, err := EnsureSlot(ctx, f.cfg, false); err == nil || !strings.Contains(err.Error(), "no slot") {
		t.Fatalf("%v", err)
	}
	f.cfg.Create = true
	for i, want := range []bool{true, false} {
		if made, err := EnsureSlot(ctx, f.cfg, false); err != nil || made != want {
			t.Fatalf("%d: created %v, %v", i, made, err)
		}
	}
	if made, err := EnsureSlot(ctx, f.cfg, true); err != nil || !made {
		t.Fatalf("recreate: %v, %v", made, err)
	}
	wants(t, f.findings(t), "ok | publication "+f.Publication, "ok | slot "+f.Slot+" | it exists, and nobody uses it")
	f.run(t)
	f.up(t, 1)
	wants(t, f.findings(t), "ok | slot "+f.Slot+` | in use by pid`)
	if made, err := EnsureSlot(ctx, f.cfg, false); err != nil || made {
		t.Fatalf("beside a running relay: %v, %v", made, err)
	}
	if worst := preflight.Worst(Check(ctx, conn, f.cfg, f.outboxes)); worst != preflight.Warning {
		t.Errorf("worst is %v", worst)
	}
}

func TestStatementsSetUpWhatEnsureAccepts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Publication += ` "Ünïcode"`
	f.cfg.Publication = f.Publication
	for _, sql := range Statements(f.cfg, idents(f.outboxes)) {
		f.Exec(t, sql)
	}
	f.cfg.Create = false
	f.run(t)
	f.up(t, 1)
	f.insert(t, "one")
	f.has(t, "one")
}

func TestCase42_SlotNamesFollowPostgresRule(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"cdc_relay": true, "a1": true, strings.Repeat("x", 63): true,
		"": false, "Slot": false, "a-b": false, "a b": false, strings.Repeat("x", 64): false, "ä": false, "x'": false} {
		err := Config{DSN: "host=h", Slot: name, Publication: "p"}.Validate()
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	if (Config{DSN: "host=h", Slot: "s"}).Validate() == nil || (Config{DSN: "host=h", Slot: "s", Publication: strings.Repeat("ä", 32)}).Validate() == nil {
		t.Error("a bad publication name")
	}
}

func TestCase05_PublicationsThatHideRowsAreTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, partitionedOutbox)
	f.adopt(t, table.Spec{Table: "parted"})
	conn := f.Connect(t)
	ctx := context.Background()
	try := func(sql string, create bool) (bool, error) {
		t.Helper()
		f.Exec(t, "DROP PUBLICATION IF EXISTS p; CREATE PUBLICATION p "+sql)
		return EnsurePublication(ctx, conn, Config{Publication: "p", Create: create}, f.outboxes)
	}
	const root, insert = "publish_via_partition_root", "publish = 'insert'"
	hidden := map[string]string{
		"FOR TABLE outbox, parted WITH (" + insert + ")":                   "SET (publish_via_partition_root = true);",
		"FOR TABLE outbox, parted WITH (publish = 'update', " + root + ")": "SET (publish = 'insert');",
		"FOR TABLE outbox WITH (" + root + ")":                             `ADD TABLE "public"."parted";`,
	}
	whole := []string{"FOR TABLE outbox, parted WITH (" + insert + ", " + root + ")", "FOR ALL TABLES WITH (" + root + ")"}
	if pgtest.One[int](t, f.DB, `SELECT current_setting('server_version_num')::int`) >= 150000 {
		hidden["FOR TABLE parted, outbox WHERE (topic = 'x') WITH ("+insert+", "+root+")"] = "row filter"
		hidden["FOR TABLE parted, outbox (id, topic, payload, status) WITH ("+insert+", "+root+")"] = "leaves out column"
		whole = append(whole, "FOR TABLE parted, outbox WHERE (status = 'PENDING') WITH ("+insert+", "+root+")",
			"FOR TABLES IN SCHEMA public WITH ("+root+")")
	}
	for sql, want := range hidden {
		if _, err := try(sql, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range whole {
		if created, err := try(sql, false); err != nil || created {
			t.Errorf("%s: %v, %v", sql, created, err)
		}
	}
	if _, err := try("FOR TABLE outbox WITH ("+insert+", "+root+")", false); err == nil || !strings.Contains(err.Error(), "ADD TABLE") {
		t.Errorf("%v", err)
	}
	if created, err := try("FOR TABLE outbox WITH ("+insert+", "+root+")", true); err != nil || created {
		t.Errorf("created %v, %v", created, err)
	}
	f.Exec(t, "DROP TABLE outbox; CREATE TABLE outbox (id bigint)")
	if _, err := EnsurePublication(ctx, conn, Config{Publication: "p", Create: true}, f.outboxes); err == nil || !strings.Contains(err.Error(), "restart the relay") {
		t.Errorf("%v", err)
	}
}

func TestSampleSetsTheGauges(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	pool := f.Pool(t)
	ctx := context.Background()
	f.run(t)
	f.up(t, 1)
	figures, err := f.stream.Sample(ctx, pool)
	do(t, err)
	if !figures.Exists || !figures.Active || figures.WALStatus != "reserved" || figures.ConfirmedFlushLSN == 0 || figures.RestartLSN == 0 ||
		figures.RetainedBytes < figures.LagBytes {
		t.Errorf("%+v", figures)
	}
	if f.metric(t, "cdc_relay_slot_active") != 1 || f.metric(t, "cdc_relay_slot_wal_status") != 1 ||
		f.metric(t, "cdc_relay_slot_lag_bytes") != float64(figures.LagBytes) || f.metric(t, "cdc_relay_slot_retained_wal_bytes") != float64(figures.RetainedBytes) {
		t.Error("gauges differ from figures")
	}
	if f.metric(t, "cdc_relay_stream_last_message_age_seconds") <= 0 {
		t.Error("no age")
	}
	missing, err := SampleSlot(ctx, pool, "no_such_slot", f.stream.metrics)
	if err != nil || missing != (SlotFigures{WALStatus: "missing"}) || f.metric(t, "cdc_relay_slot_active") != 0 || f.metric(t, "cdc_relay_slot_wal_status") != 1 {
		t.Errorf("%+v, %v", missing, err)
	}
}
