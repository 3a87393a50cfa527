package redisstream_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestG1_AFailoverBySentinelsLosesNothingThatReplicasWereWaitedForAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	c := redistest.NewSentinel(t, redistest.Options{Password: "secret"})
	s := opened(t, redisstream.Config{URL: "redis://:secret@nowhere", Addrs: c.Addrs(), MasterName: redistest.Master, WaitReplicas: 1, WaitTimeout: 300 * time.Millisecond, Timeout: time.Second})
	stream := redistest.StreamName(t)
	l := run(t, s, 4, 50, stream)
	l.await(10)
	do(t, c.Servers[0].Kill())
	c.AwaitMaster(t, c.Servers[1], 30*time.Second)
	do(t, c.Servers[0].Start(context.Background())) // which the Sentinels make a replica
	l.await(10)
	if l.hadOutages() == 0 {
		t.Error("there was no outage")
	}
	l.audit(func() []redistest.Entry { return c.Servers[1].Entries(t, stream) })
}

func TestSentinelsMayBeNamedByTheURL(t *testing.T) {
	t.Parallel()
	c := redistest.NewSentinel(t, redistest.Options{})
	url := fmt.Sprintf("redis://%s/0?master_name=%s&addr=%s", c.Addrs()[0], redistest.Master, c.Addrs()[1])
	s := opened(t, redisstream.Config{URL: url})
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "p"))
	if n := c.Servers[0].Len(t, stream); n != 1 {
		t.Errorf("%d entries", n)
	}
	wrong := opened(t, redisstream.Config{Addrs: c.Addrs(), MasterName: "nobody"})
	results := wrong.Publish(t.Context(), []*event.Event{sinktest.Event(stream, "k", "p")})
	if event.ClassOf(results[0]) != event.Unavailable {
		t.Errorf("an unknown master: %v", results[0])
	}
}

func TestG1_ANodeOfAClusterThatDiesLosesNothingAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	s := opened(t, redisstream.Config{Addrs: c.Addrs(), Timeout: time.Second})
	streams := []string{c.StreamOn(t, 0), c.StreamOn(t, 1), c.StreamOn(t, 2)}
	l := run(t, s, 6, 50, streams...)
	for node := range 2 {
		l.await(10)
		before := l.hadOutages()
		do(t, c.Nodes[node].Kill())
		testbed.Eventually(t, 20*time.Second, "an outage", func() bool { return l.hadOutages() > before || l.allWait(6) })
		do(t, c.Nodes[node].Start(context.Background()))
	}
	l.await(10)
	l.audit(func() []redistest.Entry { return entriesOf(t, c, streams...) })
}

// entriesOf are those of several streams, wherever they are. No key is in two of them.
func entriesOf(t *testing.T, c *redistest.Cluster, streams ...string) (all []redistest.Entry) {
	t.Helper()
	for _, stream := range streams {
		all = append(all, c.Nodes[c.Owner(t, stream)].Entries(t, stream)...)
	}
	return all
}

func TestG3_AStreamThatMovesToAnotherNodeUnderLoadKeepsItsOrder(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	s := opened(t, redisstream.Config{Addrs: c.Addrs()})
	stream := c.StreamOn(t, 0)
	l := run(t, s, 4, 50, stream)
	l.await(5)
	slot := c.Nodes[0].Do(t, "cluster", "keyslot", stream)
	for from := range 2 {
		to := from + 1
		host, port, err := net.SplitHostPort(c.Nodes[to].Addr())
		do(t, err)
		c.Nodes[to].Do(t, "cluster", "setslot", slot, "importing", c.ID(t, from))
		c.Nodes[from].Do(t, "cluster", "setslot", slot, "migrating", c.ID(t, to))
		l.await(5)
		c.Nodes[from].Do(t, "migrate", host, port, stream, 0, 10_000)
		l.await(5) // the old owner answers ASK
		for _, n := range []int{to, from, 3 - to - from} {
			c.Nodes[n].Do(t, "cluster", "setslot", slot, "node", c.ID(t, to))
		}
		l.await(5) // now MOVED, until go-redis has learned it
	}
	if n := l.hadOutages(); n != 0 {
		t.Errorf("%d batches weren't written at the first try, although a server was there for the stream all the time", n)
	}
	if duplicates := l.audit(func() []redistest.Entry { return c.Nodes[2].Entries(t, stream) }); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

func TestAStreamWhoseSlotMovesToANodeWithoutAnyIsFollowed(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	s := opened(t, redisstream.Config{Addrs: c.Addrs()})
	stream := c.StreamOn(t, 1)
	published(t, s, sinktest.Event(stream, "k", "0"))
	// A node that has just been added.
	joined := redistest.NewCluster(t, 1, redistest.Options{})
	joined.Nodes[0].Do(t, "cluster", "flushslots")
	joined.Join(t, c)
	slot := c.Nodes[1].Do(t, "cluster", "keyslot", stream)
	host, port, err := net.SplitHostPort(joined.Addrs()[0])
	do(t, err)
	joined.Nodes[0].Do(t, "cluster", "setslot", slot, "importing", c.ID(t, 1))
	c.Nodes[1].Do(t, "cluster", "setslot", slot, "migrating", joined.ID(t, 0))
	c.Nodes[1].Do(t, "migrate", host, port, stream, 0, 10_000)
	published(t, s, sinktest.Event(stream, "k", "1"))
	joined.Nodes[0].Do(t, "cluster", "setslot", slot, "node", joined.ID(t, 0))
	c.Nodes[1].Do(t, "cluster", "setslot", slot, "node", joined.ID(t, 0))
	published(t, s, sinktest.Event(stream, "k", "2"))
	var got []string
	for _, e := range joined.Nodes[0].Entries(t, stream) {
		got = append(got, e.Fields["payload"])
	}
	if !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("got %v", got)
	}
}

func TestG3_InAClusterAKeyWithSeveralStreamsKeepsItsOrderBehindOneThatFails(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	s := opened(t, redisstream.Config{Addrs: c.Addrs()})
	good, bad := c.StreamOn(t, 0), c.StreamOn(t, 1)
	batch := func() []*event.Event {
		return []*event.Event{
			sinktest.Event(good, "k", "1"), sinktest.Event(bad, "k", "2"), sinktest.Event(good, "k", "3"), sinktest.Event(good, "other", "4"), sinktest.Event(bad, "k", "5"), sinktest.Event(good, "", "6"),
		}
	}
	published(t, s, batch()...)
	c.Nodes[1].Do(t, "config", "set", "maxmemory", "1")
	events := batch()
	results := s.Publish(t.Context(), events)
	for i, want := range []bool{true, false, false, true, false, true} {
		if (results[i] == nil) != want {
			t.Errorf("event %d: %v", i, results[i])
		}
		if !want && event.ReasonOf(results[i]) != "out_of_memory" {
			t.Errorf("event %d: %v", i, results[i])
		}
	}
	c.Nodes[1].Do(t, "config", "set", "maxmemory", "0")
	recovered(t, s)
	published(t, s, events[1], events[2], events[4])
	var got []string
	for _, e := range c.Nodes[0].Entries(t, good)[4:] {
		got = append(got, e.Fields["payload"])
	}
	if !slices.Equal(got, []string{"1", "4", "6", "3"}) {
		t.Errorf("the good stream has %v", got)
	}
	if n := c.Nodes[1].Len(t, bad); n != 4 {
		t.Errorf("the bad stream has %d entries", n)
	}
}

func TestANodeOfAClusterThatIsTakenForAServerSaysSo(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	s := opened(t, redisstream.Config{URL: c.Nodes[0].URL()})
	results := s.Publish(t.Context(), []*event.Event{sinktest.Event(c.StreamOn(t, 1), "k", "p")})
	unavailable(t, "slot_moved", results)
	if got := results[0].Error(); !contains(got, "sink.redis.addrs") {
		t.Errorf("error = %s", got)
	}
}

func TestReplicasThatAreSilentMakeWhatTheyDontHaveUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	replica := server.NewReplica(t)
	s := opened(t, redisstream.Config{URL: server.URL(), WaitReplicas: 1, WaitTimeout: 2 * time.Second})
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "0"))
	if n := replica.Len(t, stream); n != 1 {
		t.Errorf("the replica has %d entries when the event is acknowledged", n)
	}
	do(t, replica.Pause())
	events := []*event.Event{sinktest.Event(stream, "k", "1"), sinktest.Event(stream, "k", "2")}
	unavailable(t, "not_enough_replicas", s.Publish(t.Context(), events))
	testbed.Eventually(t, 10*time.Second, "Probe to see that the replica is silent", func() bool {
		return event.ReasonOf(s.Probe(t.Context())) == "not_enough_replicas"
	})
	do(t, replica.Continue())
	recovered(t, s)
	published(t, s, events...)
	checkOrder(t, server.Entries(t, stream)[1:], events)
}

func TestATooHighNumberOfReplicasCountsNothingAsPublished(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{})
	s := opened(t, redisstream.Config{URL: server.URL(), WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond})
	stream := redistest.StreamName(t)
	unavailable(t, "not_enough_replicas", s.Publish(t.Context(), []*event.Event{sinktest.Event(stream, "k", "0")}))
	for range 3 {
		unavailable(t, "not_enough_replicas", []error{s.Probe(t.Context())})
	}
	if n := server.Len(t, stream); n != 1 {
		t.Errorf("%d entries: each Probe must not let it be tried again", n)
	}
}
