package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// fragile is a broker that tests stop, one test at a time.
var fragile struct {
	sync.Mutex
	cluster *kafkatest.Cluster
}

// brokerToStop is the fragile broker, which runs; it is this test's alone until its end.
func brokerToStop(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	fragile.Lock()
	t.Cleanup(fragile.Unlock)
	if fragile.cluster == nil {
		c, err := kafkatest.StartCluster(context.Background(), kafkatest.Options{})
		if err != nil {
			testbed.Unavailable(t, "kafka", err)
		}
		testbed.OnExit(c.Close)
		fragile.cluster = c
	}
	if err := fragile.cluster.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return fragile.cluster
}

// freeze halts a broker: it keeps its connections and answers nothing. thaw lets it go on.
func freeze(t *testing.T, c *kafkatest.Cluster) (thaw func()) {
	t.Helper()
	pid := c.Pid(0)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// awaitSlotFree waits until nobody uses the slot: the first thing that a relay does when it is told to stop.
func awaitSlotFree(t *testing.T, db *pgtest.DB) {
	t.Helper()
	pgtest.Eventually(t, time.Minute, "the slot to be free", func() bool {
		return pgtest.One[int](t, db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, db.Slot) == 0
	})
}

func TestG7_ABrokerThatIsNotThereAtTheStartIsToldAndItsEventsWaitForIt(t *testing.T) {
	t.Parallel()
	c := brokerToStop(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, nil)
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	db := pgtest.Database(t)
	config, addr := configFile(t, db, settings{yaml: toKafka(c)})
	initialise(t, config)
	r := launch(t, config, addr)
	pgtest.Eventually(t, time.Minute, "the remedy in /readyz", func() (bool, error) {
		code, body, err := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(string(body), "sink.kafka.brokers"), err
	})
	told := 0
	for l := range strings.Lines(r.log()) {
		if strings.Contains(l, "sink is not available") && strings.Contains(l, "sink.kafka.brokers") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d lines of the log tell of the broker", told)
	}
	if code, _, err := r.get("/livez"); err != nil || code != http.StatusOK {
		t.Errorf("/livez: %d, %v", code, err)
	}
	if up := r.metric("cdc_relay_sink_up"); up != 0 {
		t.Errorf("sink_up is %v", up)
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'a', to_json(i) FROM generate_series(1, 100) i`, topic)
	if err := c.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if b := audit(t, db, c, topic); b.duplicates != 0 || b.committed != 100 {
		t.Errorf("%+v", b)
	}
	if n := pgtest.One[int](t, db, `SELECT max(attempts) FROM outbox`); n != 0 {
		t.Errorf("%d attempts were counted", n)
	}
	r.awaitMode("LIVE")
	if code, body, err := r.get("/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("/readyz: %d %s %v", code, body, err)
	}
}

// The broker is silent, and gives up on no call for long. The stream must not notice.
func TestCase07_ASilentBrokerDoesNotCostTheReplicationConnection(t *testing.T) {
	t.Parallel()
	c := brokerToStop(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	pg := pgtest.NewCluster(t, pgtest.Options{Settings: map[string]string{"wal_sender_timeout": "2s"}})
	db := pg.Database(t)
	const maxInFlight = 2000
	config, addr := configFile(t, db, settings{yaml: strings.Replace(
		toKafka(c, fmt.Sprintf("dispatch: {max_in_flight: %d, ramp_up: 1s}", maxInFlight)), "timeout: 3s", "timeout: 20s", 1)})
	initialise(t, config)
	r := launch(t, config, addr)
	r.awaitMode("LIVE")
	w := write(t, db, topic, 500, 50)
	pgtest.Eventually(t, time.Minute, "the first deliveries", func() bool {
		return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) > 200
	})
	walsender := func() int {
		return pgtest.One[int](t, db, `SELECT coalesce((SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1), 0)`, db.Slot)
	}
	pid := walsender()
	thaw := freeze(t, c)
	published := func() int {
		return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`)
	}
	received := r.metric("cdc_relay_events_received_total")
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < 10*time.Second; <-look.C {
		if now := walsender(); now != pid || pid == 0 {
			t.Fatalf("the walsender was %d and is %d after %v", pid, now, time.Since(began))
		}
	}
	if r.metric("cdc_relay_in_flight_events") == 0 || r.metric("cdc_relay_events_received_total") <= received {
		t.Error("the broker was not silent, or nothing came by the stream meanwhile")
	}
	before := published()
	thaw()
	pgtest.Eventually(t, time.Minute, "deliveries again", func() bool { return published() > before })
	w.finish()
	if b := audit(t, db, c, topic); b.duplicates > maxInFlight {
		t.Errorf("%d duplicates", b.duplicates)
	}
	if now := walsender(); now != pid {
		t.Errorf("the walsender was %d and is %d", pid, now)
	}
	if n := r.metric("cdc_relay_stream_reconnects_total"); n != 0 {
		t.Errorf("the stream was started again %v times", n)
	}
	if n := pgtest.One[int](t, db, `SELECT max(attempts) FROM outbox`); n != 0 {
		t.Errorf("%d attempts were counted", n)
	}
}

func TestG10_ATermSignalDuringAnOutageEndsInGoodOrder(t *testing.T) {
	t.Parallel()
	c := brokerToStop(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, nil)
	db, r, config, addr := startKafka(t, c, "shutdown_timeout: 60s")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'a', to_json(i) FROM generate_series(1, 100) i`, topic)
	settledRows(t, db, time.Minute)
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'a', to_json(i) FROM generate_series(101, 200) i`, topic)
	pgtest.Eventually(t, time.Minute, "the outage to be noticed", func() (bool, error) {
		s, err := r.status()
		return !s.Sink.Up, err
	})
	if code := r.terminate(); code != 0 {
		t.Errorf("exit code %d: everything that was in flight had its answer", code)
	}
	if !strings.Contains(r.log(), "cdc-relay has stopped") {
		t.Error("the log doesn't tell of the end")
	}
	if err := c.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	launch(t, config, addr)
	if b := audit(t, db, c, topic); b.committed != 200 || b.duplicates > 100 {
		t.Errorf("%+v", b)
	}
}

// Calls that are under way when the relay is told to stop, and get no answer.
func TestG10_AStopGivesUpOnASilentBrokerAfterItsTimeoutAndASecondSignalAtOnce(t *testing.T) {
	t.Parallel()
	c := brokerToStop(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, nil)
	db, r, config, addr := startKafka(t, c, "shutdown_timeout: 2s")
	insert := func() {
		t.Helper()
		db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'a', to_json(i) FROM generate_series(1, 100) i`, topic)
	}
	inFlight := func() {
		t.Helper()
		pgtest.Eventually(t, time.Minute, "events in flight", func() bool { return r.metric("cdc_relay_in_flight_events") > 0 })
	}
	insert()
	settledRows(t, db, time.Minute)

	thaw := freeze(t, c)
	insert()
	inFlight()
	if code := r.terminate(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if log := r.log(); !strings.Contains(log, "stopped before everything in flight was settled; it will be delivered again after the start") {
		t.Error("the message doesn't say what will become of the events")
	}
	thaw()
	r = launch(t, config, addr, "CDC_RELAY_SHUTDOWN_TIMEOUT=10m")
	r.awaitMode("LIVE")
	settledRows(t, db, time.Minute)

	thaw = freeze(t, c)
	insert()
	inFlight()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitSlotFree(t, db)
	select {
	case <-r.exited:
		t.Fatalf("the relay has exited with code %d, with an event in flight", r.cmd.ProcessState.ExitCode())
	default:
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.exitCode(20 * time.Second)
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("the relay ended with %v, not by the second signal", r.cmd.ProcessState)
	}
	thaw()
	launch(t, config, addr)
	if b := audit(t, db, c, topic); b.committed != 300 || b.duplicates > 200 {
		t.Errorf("%+v", b)
	}
}
