package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// toKafka is the section sink for a cluster.
func toKafka(c *kafkatest.Cluster, more ...string) string {
	return fmt.Sprintf("sink:\n  kind: kafka\n  kafka:\n    brokers: [%s]\n    timeout: 3s\n%s", strings.Join(c.Brokers(), ", "), strings.Join(more, "\n"))
}

// startKafka makes the table and a relay from it to Kafka, and waits until it is LIVE.
func startKafka(t *testing.T, c *kafkatest.Cluster, more string) (db *pgtest.DB, r *instance, config, addr string) {
	t.Helper()
	db = pgtest.Database(t)
	config, addr = configFile(t, db, settings{yaml: toKafka(c, more)})
	initialise(t, config)
	r = launch(t, config, addr)
	r.awaitMode("LIVE")
	return db, r, config, addr
}

func TestG1EventsReachKafkaByteExactWithKeyAndHeaders(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 12, nil)
	db, _, _, _ := startKafka(t, c, "")
	payload := `{"n": 12345678901234567890, "text" : "Grüße, 世界 \u0000 no", "s": " "}`
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers, event_type) VALUES ($1, 'customer-1', $2::text::json, '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "é"}', 'order_placed')`, topic, payload)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'customer-1', to_json(i) FROM generate_series(1, 20) i`, topic)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, NULL, NULL)`, topic)
	records := c.ReadN(t, topic, 22, time.Minute)
	settledRows(t, db, 10*time.Second)
	var mine []kafkatest.Record
	tombstones := 0
	for _, rec := range records {
		if string(rec.Key) == "customer-1" {
			mine = append(mine, rec)
		} else if rec.Key == nil && rec.Value == nil {
			tombstones++
		}
	}
	if len(mine) != 21 || tombstones != 1 {
		t.Fatalf("%d records of the key, %d tombstones", len(mine), tombstones)
	}
	first := mine[0]
	if string(first.Value) != payload {
		t.Errorf("value %q", first.Value)
	}
	var messageID, createdAt string
	db.QueryRow(t, `SELECT message_id::text, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox ORDER BY id LIMIT 1`).Scan(&messageID, &createdAt)
	for name, want := range map[string]string{
		"message_id": messageID, "event_type": "order_placed", "created_at": createdAt, "tenant": "é",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got, ok := first.Header(name); !ok || got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	for i, rec := range mine[1:] {
		if rec.Partition != first.Partition || string(rec.Value) != fmt.Sprint(i+1) {
			t.Errorf("record %d of the key: partition %d, value %s", i+1, rec.Partition, rec.Value)
		}
	}
}

// writer inserts rows at a steady rate, in transactions of several rows, until it is stopped.
type writer struct {
	db    *pgtest.DB
	stop  context.CancelFunc
	wg    sync.WaitGroup
	wrote atomic.Int64
}

// write starts a writer: keys are serialised since one connection writes them all; some transactions are rolled back.
func write(t *testing.T, db *pgtest.DB, topic string, perSecond, keys int) *writer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{db: db, stop: stop}
	conn := db.Connect(t)
	const batch = 20
	w.wg.Go(func() {
		tick := time.NewTicker(time.Second * batch / time.Duration(perSecond))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			end := "COMMIT"
			if n%10 == 9 {
				end = "ROLLBACK"
			}
			sql := fmt.Sprintf(`BEGIN; INSERT INTO outbox (topic, key, payload) SELECT '%s', (i * 7 %% %d)::text, json_build_object('n', i, 'rolled_back', %v) FROM generate_series(%d, %d) i; %s`,
				topic, keys, end == "ROLLBACK", n*batch, n*batch+batch-1, end)
			if _, err := conn.Exec(context.WithoutCancel(ctx), sql); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			if end == "COMMIT" {
				w.wrote.Add(batch)
			}
		}
	})
	t.Cleanup(w.finish)
	return w
}

func (w *writer) finish() {
	w.stop()
	w.wg.Wait()
}

// book is what a topic and the table say after everything has been delivered.
type book struct{ committed, records, duplicates int }

// audit waits until every row is settled and holds the topic against the table: nothing lost, nothing that was rolled
// back, the first publications of each key in the order of id, everything PUBLISHED.
func audit(t *testing.T, db *pgtest.DB, c *kafkatest.Cluster, topic string) book {
	t.Helper()
	settledRows(t, db, 2*time.Minute)
	var b book
	ids := map[string]int64{}
	keys := map[string]string{}
	rows, err := db.Connect(t).Query(t.Context(), `SELECT id, message_id::text, key, status FROM outbox WHERE topic = $1`, topic)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id int64
		var message, key, status string
		if err := rows.Scan(&id, &message, &key, &status); err != nil {
			t.Fatal(err)
		}
		ids[message], keys[message] = id, key
		if status != "PUBLISHED" {
			t.Errorf("row %d is %s", id, status)
		}
		b.committed++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	last := map[string]int64{}
	for _, rec := range c.ReadAll(t, topic) {
		b.records++
		message, _ := rec.Header("message_id")
		id, ok := ids[message]
		if !ok {
			t.Errorf("event %s has no row: %s", message, rec.Value)
			continue
		}
		if strings.Contains(string(rec.Value), `"rolled_back" : true`) {
			t.Errorf("a rolled back event was published: %s", rec.Value)
		}
		if seen[message] {
			b.duplicates++
			continue
		}
		seen[message] = true
		if key := keys[message]; id < last[key] {
			t.Errorf("order: row %d after %d of key %s", id, last[key], key)
		} else {
			last[key] = id
		}
	}
	if len(seen) != b.committed {
		t.Errorf("lost: %d of %d rows have an event", len(seen), b.committed)
	}
	t.Logf("%d rows, %d records, %d duplicates", b.committed, b.records, b.duplicates)
	return b
}

func TestCase31_KillNineTenTimesUnderLoadLosesNothingKeepsOrderAndRepeatsWithinTheBound(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	const maxInFlight = 2000
	db, r, config, addr := startKafka(t, c, fmt.Sprintf("dispatch: {max_in_flight: %d}", maxInFlight))
	w := write(t, db, topic, 2000, 50)
	const kills = 10
	for range kills {
		before := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`)
		pgtest.Eventually(t, time.Minute, "deliveries between two kills", func() (bool, error) {
			return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) > before+1000, nil
		})
		r.kill()
		r = launch(t, config, addr)
	}
	w.finish()
	b := audit(t, db, c, topic)
	// One mark batch, of 1000 rows, can be committed without the relay having learned of it.
	if bound := kills * (maxInFlight + 1000); b.duplicates > bound {
		t.Errorf("%d duplicates after %d kills, the bound is %d", b.duplicates, kills, bound)
	}
	r.awaitMode("LIVE")
}

func TestCase30_GracefulRestartsUnderLoadRepeatNothingAndLoseNothing(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	db, r, config, addr := startKafka(t, c, "")
	w := write(t, db, topic, 2000, 50)
	for range 5 {
		before := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`)
		pgtest.Eventually(t, time.Minute, "deliveries between two restarts", func() (bool, error) {
			return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) > before+1000, nil
		})
		if code := r.terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		r = launch(t, config, addr)
	}
	w.finish()
	if b := audit(t, db, c, topic); b.duplicates != 0 {
		t.Errorf("%d duplicates", b.duplicates)
	}
}

func TestCase04_TheSlotDroppedUnderLoadIsRecreatedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	db, r, _, _ := startKafka(t, c, "")
	w := write(t, db, topic, 1000, 50)
	for range 3 {
		r.awaitMode("LIVE")
		recreated := r.metric("cdc_relay_slot_recreated_total")
		pgtest.Eventually(t, 30*time.Second, "the slot to be dropped", func() (bool, error) {
			db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, db.Slot)
			_, err := db.Pool(t).Exec(t.Context(), `SELECT pg_drop_replication_slot($1)`, db.Slot)
			return err == nil, nil // a relay that is quicker has it again
		})
		pgtest.Eventually(t, time.Minute, "the slot to be recreated", func() (bool, error) {
			return r.metric("cdc_relay_slot_recreated_total") > recreated, nil
		})
	}
	r.awaitMode("LIVE")
	w.finish()
	if b := audit(t, db, c, topic); b.duplicates != 0 {
		t.Errorf("%d duplicates", b.duplicates)
	}
}

func TestCase16_AMinuteWithoutKafkaCountsNoAttemptAndRetainsNoWAL(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{})
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	db, r, _, _ := startKafka(t, c, "retry: {max_attempts: 3}\ndispatch: {ramp_up: 2s, max_in_flight: 3000}")
	w := write(t, db, topic, 1000, 50)
	pgtest.Eventually(t, time.Minute, "the first deliveries", func() (bool, error) {
		return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) > 500, nil
	})
	if err := c.Stop(0); err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	outage := time.After(60 * time.Second)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	aged := false
	for during := true; during; {
		select {
		case <-outage:
			during = false
		case <-look.C:
			most = max(most, pgtest.One[int64](t, db, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1`, db.Slot))
			aged = aged || r.metric("cdc_relay_oldest_pending_age_seconds") > 10 // case 27: the figure is the table's
		}
	}
	if code, _, err := r.get("/readyz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("/readyz during the outage: %d, %v", code, err)
	}
	if code, _, err := r.get("/livez"); err != nil || code != http.StatusOK {
		t.Errorf("/livez during the outage: %d, %v", code, err)
	}
	if !aged {
		t.Error("the age of the oldest PENDING row did not tell of the outage")
	}
	t.Logf("retained WAL during the outage: at most %d bytes", most)
	if most > 64<<20 {
		t.Errorf("the slot retained %d bytes of WAL", most)
	}
	if err := c.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, 90*time.Second, "deliveries after the outage", func() (bool, error) {
		s, err := r.status()
		return s.Sink.Up, err
	})
	w.finish()
	b := audit(t, db, c, topic)
	t.Logf("%d rows were written; %d duplicates", b.committed, b.duplicates)
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE attempts <> 0`); n != 0 {
		t.Errorf("%d rows have a counted attempt", n)
	}
	r.awaitMode("LIVE")
	s, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	var modes []string
	for _, tr := range s.Transitions {
		modes = append(modes, tr.To)
	}
	if n := len(modes); n < 2 || !slices.Equal(modes[n-2:], []string{"CATCHUP", "LIVE"}) {
		t.Errorf("the last modes are %v", modes)
	}
}

func TestCase22_25_ARowTooLargeForTheBrokerIsDeadAtOnceAndTheRestIsDelivered(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "50000"})
	var mu sync.Mutex
	var alerts []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var body any
		_ = json.NewDecoder(req.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		alerts = append(alerts, fmt.Sprint(body))
	}))
	t.Cleanup(hook.Close)
	db, r, config, _ := startKafka(t, c, fmt.Sprintf("alert: {webhook: {url: %q}}", hook.URL))
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'a', to_json(CASE WHEN i = 10 THEN repeat('secret', 20000) ELSE i::text END) FROM generate_series(1, 20) i`, topic)
	c.ReadN(t, topic, 19, time.Minute)
	pgtest.Eventually(t, 20*time.Second, "the row to be DEAD and the rest PUBLISHED", func() (bool, error) {
		return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' OR status = 'DEAD'`) == 20, nil
	})
	var id int64
	var reason string
	db.QueryRow(t, `SELECT id, last_error FROM outbox WHERE status = 'DEAD'`).Scan(&id, &reason)
	if id != 10 || !strings.Contains(reason, "large") {
		t.Errorf("row %d is DEAD: %s", id, reason)
	}
	pgtest.Eventually(t, 20*time.Second, "an alert", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(alerts) > 0, nil
	})
	mu.Lock()
	if len(alerts) != 1 || strings.Contains(alerts[0], "secretsecret") {
		t.Errorf("alerts: %.300v", alerts)
	}
	mu.Unlock()
	if strings.Contains(r.log(), "secretsecret") {
		t.Error("the log holds a payload")
	}
	out, _, code := command(t, nil, "dead", "list", "-c", config)
	if code != 0 || !strings.Contains(out, topic) || strings.Contains(out, "secretsecret") {
		t.Errorf("dead list: %d\n%.500s", code, out)
	}
	c.AlterTopicConfig(t, topic, map[string]string{"max.message.bytes": "1000000"})
	if out, errs, code := command(t, nil, "dead", "retry", "10", "-c", config); code != 0 {
		t.Fatalf("dead retry: %d\n%s%s", code, out, errs)
	}
	pgtest.Eventually(t, time.Minute, "the retried row to be PUBLISHED", func() (bool, error) {
		return pgtest.One[string](t, db, `SELECT status FROM outbox WHERE id = 10`) == "PUBLISHED", nil
	})
	if n := len(c.ReadAll(t, topic)); n != 20 {
		t.Errorf("%d records", n)
	}
	if rescued := r.metric("cdc_relay_fallback_rescued_total"); rescued != 0 {
		t.Errorf("a retry by command counted as %v rescued rows", rescued)
	}
}

// A topic that does not exist yet fails its events retryably. Later events of the same key, though their own topic is
// there, wait behind them, on both paths and over a restart; other keys go on.
func TestCase20_NothingOvertakesAFailingEventOfItsKey(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	there, missing := kafkatest.TopicName(t)+"-there", kafkatest.TopicName(t)+"-missing"
	c.CreateTopic(t, there, 1, nil)
	db, r, config, addr := startKafka(t, c, "retry: {max_attempts: 100, initial: 300ms, max: 1s}")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'a', '1'), ($2, 'a', '2'), ($1, 'a', '3'), ($1, 'b', '"b1"')`, there, missing)
	pgtest.Eventually(t, time.Minute, "two failed attempts", func() (bool, error) {
		return pgtest.One[int](t, db, `SELECT attempts FROM outbox WHERE topic = $1`, missing) >= 2, nil
	})
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'a', '4'), ($1, 'b', '"b2"')`, there)
	published := func() []string {
		var got []string
		for _, rec := range c.ReadAll(t, there) {
			got = append(got, string(rec.Value))
		}
		slices.Sort(got)
		return got
	}
	pgtest.Eventually(t, time.Minute, "the other key's events", func() (bool, error) {
		return slices.Contains(published(), `"b2"`), nil
	})
	if got := published(); !slices.Equal(got, []string{`"b1"`, `"b2"`, "1"}) {
		t.Errorf("published while row 2 fails: %v", got)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r = launch(t, config, addr)
	attempts := pgtest.One[int](t, db, `SELECT attempts FROM outbox WHERE topic = $1`, missing)
	pgtest.Eventually(t, time.Minute, "an attempt after the restart", func() (bool, error) {
		return pgtest.One[int](t, db, `SELECT attempts FROM outbox WHERE topic = $1`, missing) > attempts, nil
	})
	if got := published(); !slices.Equal(got, []string{`"b1"`, `"b2"`, "1"}) {
		t.Errorf("published after a restart: %v", got)
	}
	c.CreateTopic(t, missing, 1, nil)
	settledRows(t, db, time.Minute)
	order := pgtest.All[string](t, db, `SELECT payload::text FROM outbox WHERE key = 'a' ORDER BY published_at, id`)
	if !slices.Equal(order, []string{"1", "2", "3", "4"}) {
		t.Errorf("order of key a: %v", order)
	}
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`); n != 6 {
		t.Errorf("%d rows PUBLISHED", n)
	}
	r.awaitMode("LIVE")
}

func TestCase28_APollEachSecondAndSlowMarksRepeatNothing(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	db, r, _, _ := startKafka(t, c, "fallback_poll: {interval: 1s}\nlifecycle: {mark_interval: 500ms}")
	w := write(t, db, topic, 1000, 50)
	polls := r.metric("cdc_relay_fallback_polls_total")
	pgtest.Eventually(t, time.Minute, "twenty polls under load", func() (bool, error) {
		return r.metric("cdc_relay_fallback_polls_total") >= polls+20, nil
	})
	w.finish()
	if b := audit(t, db, c, topic); b.duplicates != 0 {
		t.Errorf("%d duplicates", b.duplicates)
	}
	if rescued := r.metric("cdc_relay_fallback_rescued_total"); rescued != 0 {
		t.Errorf("%v rows were rescued", rescued)
	}
	if events := r.metric(`cdc_relay_events_published_total`); events == 0 {
		t.Error("no events were counted")
	}
}
