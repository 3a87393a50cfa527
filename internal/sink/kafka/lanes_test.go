package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// lanes publish as the relay does: each holds what was not acknowledged and sends it again, in order, after a Probe.
type lanes struct {
	topic   string
	sink    *kafka.Sink
	stop    chan struct{}
	running sync.WaitGroup

	sent     [][]string // by lane, the payloads in order; complete after the end
	outages  atomic.Int64
	finished atomic.Int64 // events
}

const keysPerLane = 5

// run starts n lanes that publish batches until end is called.
func run(t testing.TB, s *kafka.Sink, topic string, n, batch int) *lanes {
	l := &lanes{topic: topic, sink: s, stop: make(chan struct{}), sent: make([][]string, n)}
	for lane := range n {
		l.running.Go(func() { l.lane(t, lane, batch) })
	}
	return l
}

func (l *lanes) lane(t testing.TB, lane, batch int) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		var events []*event.Event
		for range batch {
			n := len(l.sent[lane])
			e := sinktest.Event(l.topic, fmt.Sprintf("%d/%d", lane, n%keysPerLane), fmt.Sprintf("%d", n))
			l.sent[lane] = append(l.sent[lane], string(e.Payload))
			events = append(events, e)
		}
		for len(events) > 0 {
			events = l.once(t, events)
			if t.Failed() {
				return
			}
		}
	}
}

// once publishes and returns what is to be sent again.
func (l *lanes) once(t testing.TB, events []*event.Event) []*event.Event {
	ctx := context.Background()
	results := l.sink.Publish(ctx, events)
	var rest []*event.Event
	away := false
	for i, err := range results {
		switch {
		case err == nil:
			l.finished.Add(1)
			continue
		case event.ClassOf(err) == event.Unavailable:
			away = true
		default:
			t.Errorf("a good event failed: %v (%v)", err, event.ClassOf(err))
		}
		rest = append(rest, events[i])
	}
	if away {
		l.outages.Add(1)
		testbed.Eventually(t, time.Minute, "a Probe that succeeds", func() error { return l.sink.Probe(ctx) })
	}
	return rest
}

// end stops the lanes, with everything acknowledged, and demands that the topic has every event, and the first of each in
// the order of its key. It returns how many came twice.
func (l *lanes) end(t testing.TB, c *kafkatest.Cluster) (duplicates int) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	want, total := map[string][]string{}, 0
	for lane, sent := range l.sent {
		for n, payload := range sent {
			key := fmt.Sprintf("%d/%d", lane, n%keysPerLane)
			want[key] = append(want[key], payload)
			total++
		}
	}
	got, seen := map[string][]string{}, map[string]bool{}
	for _, r := range c.ReadN(t, l.topic, total, time.Minute) {
		key, id := string(r.Key), string(r.Key)+" "+string(r.Value)
		if seen[id] {
			duplicates++
			continue
		}
		seen[id] = true
		got[key] = append(got[key], string(r.Value))
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("the key %s: %d of %d events, or in another order", key, len(got[key]), len(want[key]))
		}
	}
	t.Logf("%d events, %d calls that met an outage, %d duplicates", total, l.outages.Load(), duplicates)
	return duplicates
}

// progress waits until so many more events are acknowledged.
func (l *lanes) progress(t testing.TB, events int64) {
	t.Helper()
	from := l.finished.Load()
	testbed.Eventually(t, time.Minute, fmt.Sprintf("%d more events", events), func() bool { return l.finished.Load() >= from+events || t.Failed() })
}

func TestG3_ThirtyTwoLanesKeepEachKeysOrderWithoutADuplicate(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	l := run(t, opened(t, c, kafka.Config{}, kafka.Options{Inversions: noInversions(t)}), topic, 32, 200)
	l.progress(t, 32*200*3)
	if n := l.end(t, c); n > 0 {
		t.Errorf("%d duplicates", n)
	}
	if n := l.outages.Load(); n > 0 {
		t.Errorf("%d calls say that the brokers are away", n)
	}
}

func noInversions(t testing.TB) func(int) {
	return func(n int) { t.Errorf("%d events were acknowledged behind one of their key that failed", n) }
}

func TestCase21_BrokersThatStopAndDieUnderLoadReorderAndLoseNothing(t *testing.T) {
	c := kafkatest.NewCluster(t, kafkatest.Options{Nodes: 3})
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, map[string]string{"min.insync.replicas": "2"})
	l := run(t, opened(t, c, kafka.Config{Timeout: 5 * time.Second}, kafka.Options{Inversions: noInversions(t)}), topic, 8, 50)
	l.progress(t, 1000)
	for node, end := range []func(int) error{c.Stop, c.Kill} {
		if err := end(node); err != nil {
			t.Error(err)
		}
		l.progress(t, 1000)
		if err := c.Start(t.Context(), node); err != nil {
			t.Error(err)
		}
		l.progress(t, 1000)
	}
	l.end(t, c)
}

func TestCase21_TheOnlyBrokerRestartsUnderLoadAndNothingIsReorderedOrLost(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{})
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 3, nil)
	l := run(t, opened(t, c, kafka.Config{Timeout: 3 * time.Second}, kafka.Options{Inversions: noInversions(t)}), topic, 8, 50)
	l.progress(t, 1000)
	for _, end := range []func(int) error{c.Stop, c.Kill} {
		if err := end(0); err != nil {
			t.Error(err)
		}
		if err := c.Start(t.Context(), 0); err != nil {
			t.Error(err)
		}
		l.progress(t, 1000)
	}
	l.end(t, c)
}
