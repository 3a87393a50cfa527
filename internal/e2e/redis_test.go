package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
)

// startRedis makes the table and a relay from it to Redis, and waits until it is LIVE.
func startRedis(t *testing.T, server *redistest.Server, more string) (db *pgtest.DB, r *instance, config, addr string) {
	t.Helper()
	db = pgtest.Database(t)
	config, addr = configFile(t, db, settings{yaml: fmt.Sprintf("sink: {kind: redis, redis: {url: %q, timeout: 2s}}\n%s", server.URL(), more)})
	initialise(t, config)
	r = launch(t, config, addr)
	r.awaitMode("LIVE")
	return db, r, config, addr
}

func TestG1_EventsReachRedisByteExactWithAllTheirFields(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	stream := redistest.StreamName(t)
	db, _, config, _ := startRedis(t, server, "")
	payload := `{"n": 12345678901234567890, "text" : "Grüße, 世界 \u0000 no", "s": " "}`
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers, event_type) VALUES ($1, 'customer-1', $2::text::json, '{"traceparent": "00-1", "tenant": "é"}', 'order_placed')`, stream, payload)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, NULL, NULL)`, stream)
	entries := server.AwaitEntries(t, stream, 2, time.Minute)
	settledRows(t, db, 10*time.Second)
	ids := pgtest.All[string](t, db, `SELECT message_id::text FROM outbox ORDER BY id`)
	full, bare := entries[0].Fields, entries[1].Fields
	if full["id"] == ids[1] { // rows without a common key have no order
		full, bare = bare, full
	}
	if full["id"] != ids[0] || full["key"] != "customer-1" || full["type"] != "order_placed" || full["payload"] != payload {
		t.Errorf("the first entry is %q", full)
	}
	var headers map[string]string
	if err := json.Unmarshal([]byte(full["headers"]), &headers); err != nil {
		t.Fatal(err)
	}
	created := pgtest.One[string](t, db, `SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox ORDER BY id LIMIT 1`)
	if want := map[string]string{"traceparent": "00-1", "tenant": "é", "created_at": created}; !maps.Equal(headers, want) {
		t.Errorf("headers %v, want %v", headers, want)
	}
	if bare["id"] != ids[1] || len(bare) != 2 {
		t.Errorf("the entry of NULLs is %q", bare)
	}
	out, errs, code := command(t, nil, "check", "-c", config)
	if code != 0 || !strings.Contains(out, "answers and takes writes") || !strings.Contains(out, "stream "+stream) {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
}

// auditRedis waits until every row is settled and holds the stream against the table. It returns the number of duplicates.
func auditRedis(t *testing.T, db *pgtest.DB, server *redistest.Server, stream string) (duplicates int) {
	t.Helper()
	settledRows(t, db, 2*time.Minute)
	ids := map[string]int64{}
	rows, err := db.Connect(t).Query(t.Context(), `SELECT id, message_id::text, status, attempts FROM outbox WHERE topic = $1`, stream)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id, attempts int64
		var message, status string
		if err := rows.Scan(&id, &message, &status, &attempts); err != nil {
			t.Fatal(err)
		}
		if ids[message] = id; status != "PUBLISHED" || attempts != 0 {
			t.Errorf("row %d is %s after %d failed attempts", id, status, attempts)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	seen, last := map[string]bool{}, map[string]int64{}
	for _, e := range server.Entries(t, stream) {
		message, key := e.Fields["id"], e.Fields["key"]
		id, ok := ids[message]
		switch {
		case !ok:
			t.Errorf("entry %s has no row: %s", message, e.Fields["payload"])
		case seen[message]:
			duplicates++
		case id < last[key]:
			t.Errorf("order: row %d after %d of key %s", id, last[key], key)
		default:
			last[key] = id
		}
		seen[message] = true
	}
	if len(seen) != len(ids) {
		t.Errorf("lost: %d of %d rows have an entry", len(seen), len(ids))
	}
	t.Logf("%d rows, %d duplicates", len(ids), duplicates)
	return duplicates
}

func TestG1_G3_ARedisThatIsFullAndThenKilledLosesNothingKeepsTheOrderAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	stream := redistest.StreamName(t)
	db, r, _, _ := startRedis(t, server, "retry: {max_attempts: 3}\ndispatch: {ramp_up: 1s}")
	w := write(t, db, stream, 1000, 50)
	deliveries := func() {
		t.Helper()
		before := server.Len(t, stream)
		pgtest.Eventually(t, time.Minute, "deliveries", func() bool { return server.Len(t, stream) > before+500 })
	}
	noticed := func(reason string) {
		t.Helper()
		pgtest.Eventually(t, 30*time.Second, "the outage to be told", func() (bool, error) {
			s, err := r.status()
			return !s.Sink.Up && strings.Contains(r.log(), reason), err
		})
	}
	deliveries()
	server.Do(t, "config", "set", "maxmemory", "1", "maxmemory-policy", "noeviction")
	noticed("out_of_memory")
	server.Do(t, "config", "set", "maxmemory", "0")
	deliveries()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	noticed("connection_lost")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliveries()
	w.finish()
	auditRedis(t, db, server, stream)
	r.awaitMode("LIVE")
	if n := r.metric("cdc_relay_order_inversions_total"); n != 0 {
		t.Errorf("%v inversions", n)
	}
}
