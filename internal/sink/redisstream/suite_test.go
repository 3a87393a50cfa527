package redisstream_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

var _ sink.Sink = (*redisstream.Sink)(nil)

// limit is the largest entry that the suite's sinks take.
const limit = 2 << 20

// The suites look for goroutines that are left, so nothing may run beside them.

func TestRedisStreamsPassTheSuite(t *testing.T) {
	server := redistest.NewServer(t, redistest.Options{})
	target := target(server)
	target.New = func(t testing.TB) sink.Sink { return open(t, redisstream.Config{URL: server.URL()}) }
	target.Stop = func(t testing.TB) { do(t, server.Stop()) }
	target.Start = func(t testing.TB) { do(t, server.Start(context.Background())) }
	sinktest.Run(t, target)
}

func TestAMasterBehindSentinelsPassesTheSuite(t *testing.T) {
	c := redistest.NewSentinel(t, redistest.Options{})
	target := target(c.Servers[0])
	target.New = func(t testing.TB) sink.Sink {
		return open(t, redisstream.Config{Addrs: c.Addrs(), MasterName: redistest.Master})
	}
	sinktest.Run(t, target)
}

func TestAClusterPassesTheSuite(t *testing.T) {
	c := redistest.NewCluster(t, 3, redistest.Options{})
	target := target(nil)
	target.New = func(t testing.TB) sink.Sink { return open(t, redisstream.Config{Addrs: c.Addrs()[:1]}) }
	target.Received = func(t testing.TB, topic string, n int) []sinktest.Message {
		return messages(t, c.Nodes[c.Owner(t, topic)].AwaitEntries(t, topic, n, 10*time.Second))
	}
	stopped := 0
	target.Stop = func(t testing.TB) { // all of them, so that it is an outage for every stream
		for _, n := range c.Nodes {
			do(t, n.Stop())
		}
		stopped++
	}
	target.Start = func(t testing.TB) {
		for _, n := range c.Nodes {
			do(t, n.Start(context.Background()))
		}
		c.AwaitOK(t, len(c.Nodes))
	}
	sinktest.Run(t, target)
	if stopped == 0 {
		t.Error("the suite stopped nothing")
	}
}

// target is what all topologies have in common.
func target(server *redistest.Server) sinktest.Target {
	return sinktest.Target{
		Topic: func(t testing.TB) string { return redistest.StreamName(t) },
		Received: func(t testing.TB, topic string, n int) []sinktest.Message {
			return messages(t, server.AwaitEntries(t, topic, n, 10*time.Second))
		},
		Unacceptable: func(t testing.TB, topic string) *event.Event {
			e := sinktest.Event(topic, "k", "")
			e.Payload = make([]byte, limit)
			return e
		},
	}
}

// open makes a sink without closing it: the suite does.
func open(t testing.TB, config redisstream.Config) *redisstream.Sink {
	t.Helper()
	if config.Timeout == 0 {
		config.Timeout = 3 * time.Second
	}
	if config.MaxMessageBytes == 0 {
		config.MaxMessageBytes = limit
	}
	config.Ordered = true
	s, err := redisstream.New(config, redisstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// messages are entries as the suite wants them.
func messages(t testing.TB, entries []redistest.Entry) []sinktest.Message {
	t.Helper()
	var all []sinktest.Message
	for _, e := range entries {
		var m sinktest.Message
		m.Key, m.HasKey = e.Fields["key"], has(e, "key")
		if has(e, "payload") {
			m.Payload = []byte(e.Fields["payload"])
		}
		if err := json.Unmarshal([]byte(e.Fields["headers"]), &m.Headers); err != nil {
			t.Errorf("headers %q: %v", e.Fields["headers"], err)
		}
		for _, own := range []string{sink.HeaderMessageID, sink.HeaderEventType} {
			if _, ok := m.Headers[own]; ok {
				t.Errorf("%s is a field and a header: %v", own, e.Fields)
			}
		}
		m.Headers[sink.HeaderMessageID] = e.Fields["id"]
		if has(e, "type") {
			m.Headers[sink.HeaderEventType] = e.Fields["type"]
		}
		all = append(all, m)
	}
	return all
}

func has(e redistest.Entry, field string) bool {
	_, ok := e.Fields[field]
	return ok
}

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
