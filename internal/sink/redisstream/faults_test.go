package redisstream_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestG3_MemoryThatFillsWithinABatchLeavesNothingOfItAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "before"))
	// Room for some of them: the server gets to the limit while it takes the batch in.
	server.Do(t, "config", "set", "maxmemory", "3mb", "maxmemory-policy", "noeviction")
	var events []*event.Event
	for i := range 90 {
		events = append(events, sinktest.Event(stream, "k", fmt.Sprint(i, strings.Repeat("x", 40_000))))
	}
	for range 3 {
		unavailable(t, "out_of_memory", s.Publish(t.Context(), events))
		if n := server.Len(t, stream); n != 1 {
			t.Errorf("%d entries of the batch were written", n-1)
		}
		recovered(t, s) // there is room between the batches
	}
	server.Do(t, "config", "set", "maxmemory", "1")
	results := s.Publish(t.Context(), events[:1])
	unavailable(t, "out_of_memory", results)
	if !strings.Contains(results[0].Error(), "raise maxmemory") {
		t.Errorf("nothing to do about it is said: %v", results[0])
	}
	if err := s.Probe(t.Context()); event.ReasonOf(err) != "out_of_memory" {
		t.Errorf("Probe: %v", err)
	}
	server.Do(t, "config", "set", "maxmemory", "0")
	recovered(t, s)
	published(t, s, events...)
	checkOrder(t, server.Entries(t, stream)[1:], events)
}

// checkOrder demands each event's first entry in order. An event's rank is its place in events.
func checkOrder(t *testing.T, entries []redistest.Entry, events []*event.Event) {
	t.Helper()
	next := 0
	seen := map[string]bool{}
	for _, e := range entries {
		if seen[e.Fields["id"]] {
			continue
		}
		seen[e.Fields["id"]] = true
		if next >= len(events) || e.Fields["id"] != event.FormatUUID(events[next].MessageID) {
			t.Fatalf("entry %s comes where event %d of %d should", e.Fields["id"], next, len(events))
		}
		next++
	}
	if next != len(events) {
		t.Errorf("%d of %d events arrived", next, len(events))
	}
}

func TestG3_MemoryThatComesAndGoesReordersNoKeyAndLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	l := run(t, s, 4, 200, stream)
	for range 50 { // each time in the middle of some batch
		before := l.hadOutages()
		server.Do(t, "config", "set", "maxmemory", "1mb")
		testbed.Eventually(t, 10*time.Second, "memory to be short", func() bool { return l.hadOutages() > before || l.allWait(4) || t.Failed() })
		server.Do(t, "config", "set", "maxmemory", "0")
		l.await(1)
	}
	if duplicates := l.audit(func() []redistest.Entry { return server.Entries(t, stream) }); duplicates != 0 {
		t.Errorf("%d duplicates, although a refused batch leaves nothing", duplicates)
	}
}

func TestG1_AServerThatIsKilledUnderLoadLosesNothingAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	l := run(t, s, 4, 100, stream)
	for range 3 {
		l.await(10)
		do(t, server.Kill())
		do(t, server.Start(context.Background()))
	}
	l.await(10)
	if l.hadOutages() == 0 {
		t.Error("there was no outage")
	}
	l.audit(func() []redistest.Entry { return server.Entries(t, stream) })
}

// proxied is a server behind a proxy that misbehaves when told to.
func proxied(t *testing.T) (*redistest.Server, *chaos.Proxy, redisstream.Config) {
	t.Helper()
	server := redistest.NewServer(t, redistest.Options{})
	proxy, err := chaos.NewProxy(server.Addr())
	do(t, err)
	t.Cleanup(func() { do(t, proxy.Close()) })
	return server, proxy, redisstream.Config{URL: "redis://" + proxy.Addr(), Timeout: time.Second}
}

func TestG1_ConnectionsThatAreCutUnderLoadLoseNothingAndKeepTheOrder(t *testing.T) {
	t.Parallel()
	server, proxy, config := proxied(t)
	s := opened(t, config)
	stream := redistest.StreamName(t)
	l := run(t, s, 4, 100, stream)
	for range 20 {
		l.await(3)
		proxy.CloseAll()
	}
	l.await(10)
	if l.hadOutages() == 0 {
		t.Error("there was no outage")
	}
	l.audit(func() []redistest.Entry { return server.Entries(t, stream) })
}

func TestASilentServerIsUnavailableWithinTheBoundAndItsLateAnswerIsOnlyADuplicate(t *testing.T) {
	t.Parallel()
	server, proxy, config := proxied(t)
	config.Timeout = 300 * time.Millisecond
	s := opened(t, config)
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "0"))
	proxy.Stall(chaos.ToClient) // the server writes the entries, and its answer doesn't come
	events := []*event.Event{sinktest.Event(stream, "k", "1"), sinktest.Event(stream, "k", "2"), sinktest.Event(stream, "k", "3")}
	unavailable(t, "timed_out", s.Publish(t.Context(), events))
	if err := s.Probe(t.Context()); event.ReasonOf(err) != "timed_out" {
		t.Errorf("Probe of a silent server: %v", err)
	}
	proxy.Resume()
	recovered(t, s)
	published(t, s, events...)
	entries := server.Entries(t, stream)[1:]
	if len(entries) != 6 {
		t.Errorf("%d entries, want each twice", len(entries))
	}
	checkOrder(t, entries, events)
}

func TestAServerThatIsHaltedHoldsNeitherPublishNorCloseBeyondTheirContext(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	s := open(t, redisstream.Config{URL: server.URL(), Timeout: 20 * time.Second})
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "0"))
	do(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	unavailable(t, "timed_out", s.Publish(ctx, []*event.Event{sinktest.Event(stream, "k", "1")}))
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("they took %v", d)
	}
	do(t, server.Continue())
}

// An outage by what the server says: for each, how to bring it about and how to end it.
func TestAServerThatRefusesWritesIsUnavailableUntilItTakesThemAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason     string
		begin, end func(t *testing.T, server *redistest.Server)
	}{
		{"read_only", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "replicaof", "127.0.0.1", "1")
		}, func(t *testing.T, server *redistest.Server) {
			server.Do(t, "replicaof", "no", "one")
		}},
		{"not_enough_replicas", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "min-replicas-to-write", "1")
		}, func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "min-replicas-to-write", "0")
		}},
		{"persistence_failing", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "save", "3600 1000000")
			do(t, os.Mkdir(filepath.Join(filepath.Dir(server.Log()), "dump.rdb"), 0o700)) // where the snapshot should go
			server.Do(t, "bgsave")
			testbed.Eventually(t, 10*time.Second, "the snapshot to fail", func() bool { return server.Info(t, "persistence", "rdb_last_bgsave_status") == "err" })
		}, func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "stop-writes-on-bgsave-error", "no")
		}},
		{"authentication_failed", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "requirepass", "changed")
			server.Do(t, "client", "kill", "type", "normal", "skipme", "yes")
		}, func(t *testing.T, server *redistest.Server) {
			server.Do(t, "config", "set", "requirepass", "first")
		}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			t.Parallel()
			server := redistest.NewServer(t, redistest.Options{Password: "first"})
			s := opened(t, redisstream.Config{URL: server.URL()})
			stream := redistest.StreamName(t)
			published(t, s, sinktest.Event(stream, "k", "0"))
			events := []*event.Event{sinktest.Event(stream, "k", "1"), sinktest.Event(stream, "k", "2")}
			test.begin(t, server)
			results := s.Publish(t.Context(), events) // a connection that was closed is seen before it is used
			unavailable(t, test.reason, results)
			for range 2 {
				if err := s.Probe(t.Context()); event.ClassOf(err) != event.Unavailable || event.ReasonOf(err) != test.reason {
					t.Errorf("Probe: %v", err)
				}
			}
			test.end(t, server)
			recovered(t, s)
			published(t, s, events...)
			checkOrder(t, server.Entries(t, stream)[1:], events)
			if n := server.Len(t, stream); n != 3 {
				t.Errorf("%d entries", n)
			}
		})
	}
}

func TestAScriptThatRunsForTooLongIsAnOutageToo(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Settings: map[string]string{"lua-time-limit": "50"}})
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "0"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = server.Try("eval", "while true do end", "0") // killed
	}()
	testbed.Eventually(t, 10*time.Second, "the script to be noticed", func() bool {
		results := s.Publish(t.Context(), []*event.Event{sinktest.Event(stream, "k", "1")})
		return event.ReasonOf(results[0]) == "busy"
	})
	if err := s.Probe(t.Context()); event.ReasonOf(err) != "busy" {
		t.Errorf("Probe: %v", err)
	}
	server.Do(t, "script", "kill")
	<-done
	recovered(t, s)
	published(t, s, sinktest.Event(stream, "k", "2"))
}
