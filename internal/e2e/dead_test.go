package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// A topic that does not exist, where the broker makes none by itself, costs its own rows their attempts and nobody else
// anything; and whatever can't be delivered has a state, a reason and a counter.
func TestCase23_24_WhatCannotBeDeliveredIsDeadWithItsReasonAndTheRestIsDelivered(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 3, map[string]string{"max.message.bytes": "50000"})
	unknown := kafkatest.TopicName(t) + "-unknown"
	db, r, config, _ := startKafka(t, c, "retry: {max_attempts: 3, initial: 300ms, max: 1s, jitter: 0}")

	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'good ' || i % 7, to_json(i) FROM generate_series(1, 50) i`, topic)
	bad := []struct {
		insert, reason string
		attempts       int
		rows           int
	}{
		{`INSERT INTO outbox (topic, key, payload) SELECT $1, 'unknown ' || i, '1' FROM generate_series(1, 4) i`, "unknown_topic", 3, 4},
		{`INSERT INTO outbox (topic, key, payload) SELECT $1 || ' with spaces', 'invalid topic ' || i, '1' FROM generate_series(1, 2) i`, "invalid_topic", 1, 2},
		{`INSERT INTO outbox (topic, key, payload) SELECT '', 'no topic' || $1::text, '1'`, "invalid_row: the topic is empty", 1, 1},
		{`INSERT INTO outbox (topic, key, payload, headers) VALUES ($1, 'headers', '1', '["no", "object"]')`, "invalid_row: headers", 1, 1},
		{`INSERT INTO outbox (topic, key, payload) SELECT $1, 'large ' || i, to_json(repeat('x', 60000)) FROM generate_series(1, 2) i`, "too_large", 1, 2},
	}
	total := 50
	for i, b := range bad {
		to := topic
		if i == 0 {
			to = unknown
		}
		db.Exec(t, b.insert, to)
		total += b.rows
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'good ' || i % 7, to_json(i) FROM generate_series(51, 100) i`, topic)
	total += 50

	c.ReadN(t, topic, 100, time.Minute)
	settledRows(t, db, time.Minute)
	dead := 0
	for _, b := range bad {
		n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'DEAD' AND last_error LIKE '%' || $1 || '%' AND attempts = $2`, b.reason, b.attempts)
		if n != b.rows {
			t.Errorf("%d rows are DEAD of %s after %d attempts, want %d", n, b.reason, b.attempts, b.rows)
		}
		dead += b.rows
	}
	if t.Failed() {
		for _, row := range pgtest.All[string](t, db, `SELECT format('%s %s %s: %s', topic, key, attempts, last_error) FROM outbox WHERE status = 'DEAD'`) {
			t.Log(row)
		}
	}
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`); n != 100 {
		t.Errorf("%d rows are PUBLISHED", n)
	}
	if records := c.ReadAll(t, topic); len(records) != 100 {
		t.Errorf("%d records", len(records))
	}
	if published, buried := r.metric("cdc_relay_events_published_total"), r.metric("cdc_relay_events_dead_total"); published != 100 || int(buried) != dead || int(published+buried) != total {
		t.Errorf("counted: %v published, %v DEAD of %d rows", published, buried, total)
	}
	if n := r.metric(`cdc_relay_events_dead_total{reason="attempts_exhausted"}`); n != 4 {
		t.Errorf("%v rows are counted as out of attempts", n)
	}
	pgtest.Eventually(t, time.Minute, "/readyz to tell of DEAD rows and to stay ready", func() (bool, error) {
		code, body, err := r.get("/readyz")
		return code == 200 && strings.Contains(string(body), "cdc-relay dead list"), err
	})
	out, errs, exit := command(t, nil, "dead", "list", "-c", config)
	if exit != 0 || strings.Count(out, unknown) < 4 || !strings.Contains(out, "unknown_topic") {
		t.Errorf("dead list: %d\n%s%s", exit, out, errs)
	}

	// When the cause is mended the rows are delivered by command, with their own ids.
	c.CreateTopic(t, unknown, 1, nil)
	if out, errs, exit := command(t, nil, "dead", "retry", "--topic", unknown, "-c", config); exit != 0 {
		t.Fatalf("dead retry: %d\n%s%s", exit, out, errs)
	}
	ids := map[string]bool{}
	for _, rec := range c.ReadN(t, unknown, 4, time.Minute) {
		id, _ := rec.Header("message_id")
		ids[id] = true
	}
	for _, id := range pgtest.All[string](t, db, `SELECT message_id::text FROM outbox WHERE topic = $1`, unknown) {
		if !ids[id] {
			t.Errorf("event %s was not delivered: %s", id, fmt.Sprint(ids))
		}
	}
}
