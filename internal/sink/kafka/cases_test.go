package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// narrow is a topic that takes less than the relay tries.
var narrow = map[string]string{"max.message.bytes": "20000"}

func TestCase22_OnlyTheOversizedEventIsRefusedAndItsKeyKeepsItsOrder(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 2, narrow)
	s := opened(t, c, kafka.Config{}, kafka.Options{Inversions: noInversions(t)})
	var callers sync.WaitGroup
	var mu sync.Mutex
	want := map[string][]string{}
	for lane := range 4 {
		callers.Go(func() {
			key := fmt.Sprint("key ", lane)
			for call := range 5 {
				var events []*event.Event
				var good []string
				for i := range 300 {
					e := sinktest.Event(topic, key, fmt.Sprintf("%d/%d", call, i))
					if i%100 == 50 && lane%2 == 0 {
						e.Payload = make([]byte, 30_000)
					} else {
						good = append(good, string(e.Payload))
					}
					events = append(events, e)
				}
				for i, err := range s.Publish(t.Context(), events) {
					bad := len(events[i].Payload) == 30_000
					if bad && (event.ClassOf(err) != event.Permanent || event.ReasonOf(err) != "message_too_large") {
						t.Errorf("the oversized event: %v (%v)", err, event.ClassOf(err))
					}
					if !bad && err != nil {
						t.Errorf("the good event %d: %v (%v)", i, err, event.ClassOf(err))
					}
				}
				mu.Lock()
				want[key] = append(want[key], good...)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	got := map[string][]string{}
	for _, r := range c.ReadAll(t, topic) {
		got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s: %d events, want %d, or another order", key, len(got[key]), len(want[key]))
		}
	}
}

func TestCase22_SmallEventsAreNotRefusedForTheSizeOfTheirBatch(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, narrow)
	s := opened(t, c, kafka.Config{}, kafka.Options{Inversions: noInversions(t)})
	var events []*event.Event
	var want []string
	for i := range 60 { // more than the topic takes at once
		e := sinktest.Event(topic, "k", fmt.Sprint(i, strings.Repeat("x", 1500)))
		events, want = append(events, e), append(want, string(e.Payload))
	}
	published(t, s, events)
	var got []string
	for _, r := range c.ReadN(t, topic, len(want), 30*time.Second) {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d records of %d, or another order", len(got), len(want))
	}
}

func TestCase22_AnEventBeyondTheRelaysOwnLimitIsRefusedWithoutBeingSent(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	s := opened(t, c, kafka.Config{MaxMessageBytes: 5000}, kafka.Options{})
	events := []*event.Event{sinktest.Event(topic, "k", "1"), sinktest.Event(topic, "k", strings.Repeat("x", 5000)), sinktest.Event(topic, "k", "2")}
	results := s.Publish(t.Context(), events)
	if results[0] != nil || results[2] != nil {
		t.Errorf("the neighbours: %v, %v", results[0], results[2])
	}
	if err := results[1]; event.ClassOf(err) != event.Permanent || event.ReasonOf(err) != "message_too_large" || !strings.Contains(err.Error(), "sink.kafka.max_message_bytes") {
		t.Errorf("the oversized event: %v", err)
	}
}

func TestALargeEventKeepsItsPlaceAmongTheSmallOnesOfItsKey(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "4000000"})
	s := opened(t, c, kafka.Config{MaxMessageBytes: 4 << 20}, kafka.Options{Inversions: noInversions(t)})
	var events []*event.Event
	var want []int
	for i := range 20 {
		size := i + 1
		if i%5 == 3 {
			size += 2 << 20
		}
		events = append(events, sinktest.Event(topic, "k", strings.Repeat("x", size)))
		want = append(want, size)
	}
	published(t, s, events)
	var got []int
	for _, r := range c.ReadN(t, topic, len(want), 30*time.Second) {
		got = append(got, len(r.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got sizes %v", got)
	}
}

func TestAnEventWithoutAKeyInACompactedTopicIsRefusedAlone(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, map[string]string{"cleanup.policy": "compact"})
	s := opened(t, c, kafka.Config{}, kafka.Options{})
	events := []*event.Event{sinktest.Event(topic, "a", "1"), sinktest.Event(topic, "", "2"), sinktest.Event(topic, "b", "3")}
	results := s.Publish(t.Context(), events)
	if results[0] != nil || results[2] != nil || event.ClassOf(results[1]) != event.Permanent || event.ReasonOf(results[1]) != "invalid_record" {
		t.Errorf("results %v", results)
	}
}

func TestCase24_AnUnknownTopicFailsItsOwnEventsOnly(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t) // auto.create.topics.enable is false
	topic, missing := c.UniqueTopic(t), kafkatest.TopicName(t)
	s := opened(t, c, kafka.Config{}, kafka.Options{Inversions: noInversions(t)})
	for range 5 { // more often than sarama's circuit breaker stands
		events := []*event.Event{
			sinktest.Event(topic, "a", "1"), sinktest.Event(missing, "b", "2"), sinktest.Event(missing, "b", "3"), sinktest.Event(topic, "b", "4"), sinktest.Event(topic, "a", "5"),
		}
		results := s.Publish(t.Context(), events)
		if results[0] != nil || results[4] != nil {
			t.Errorf("the other events: %v, %v", results[0], results[4])
		}
		if err := results[1]; event.ClassOf(err) != event.Retryable || event.ReasonOf(err) != "unknown_topic" {
			t.Errorf("the event for the unknown topic: %v (%v)", err, event.ClassOf(err))
		}
		for _, i := range []int{2, 3} {
			if event.ClassOf(results[i]) != event.NotAttempted {
				t.Errorf("event %d, behind it in its key: %v", i, results[i])
			}
		}
	}
	if n := c.Count(t, topic); n != 10 {
		t.Errorf("%d records", n)
	}
	c.CreateTopic(t, missing, 1, nil)
	testbed.Eventually(t, 10*time.Second, "the new topic to be known", func() error {
		return s.Publish(t.Context(), []*event.Event{sinktest.Event(missing, "b", "6")})[0]
	})
}

func TestCase24_ATopicThatIsDeletedFailsItsOwnEventsAndWorksWhenItIsBack(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic, other := c.UniqueTopic(t), c.UniqueTopic(t)
	s := opened(t, c, kafka.Config{}, kafka.Options{})
	published(t, s, []*event.Event{sinktest.Event(topic, "a", "1"), sinktest.Event(other, "b", "1")})
	c.DeleteTopic(t, topic)
	for range 4 {
		results := s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "a", "2"), sinktest.Event(other, "b", "2")})
		if err := results[0]; event.ClassOf(err) != event.Retryable || event.ReasonOf(err) != "unknown_topic" {
			t.Errorf("the event for the deleted topic: %v (%v)", err, event.ClassOf(err))
		}
		if results[1] != nil {
			t.Errorf("the other event: %v", results[1])
		}
	}
	c.CreateTopic(t, topic, 1, nil)
	testbed.Eventually(t, 10*time.Second, "the topic to be known again", func() error {
		return s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "a", "3")})[0]
	})
}

func TestAnEventThatOvertookAFailedOneOfItsKeyInAnotherTopicIsCounted(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic, other := c.UniqueTopic(t), c.UniqueTopic(t)
	var inversions int
	s := opened(t, c, kafka.Config{}, kafka.Options{Inversions: func(n int) { inversions += n }})
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "1"), sinktest.Event(other, "k", "2")})
	c.DeleteTopic(t, topic)
	results := s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "k", "3"), sinktest.Event(other, "k", "4")})
	if event.ReasonOf(results[0]) != "unknown_topic" || results[1] != nil || inversions != 1 {
		t.Errorf("results %v, %d inversions", results, inversions)
	}
}

func TestATopicThatTheBrokersCreateByThemselvesWorksAtOnce(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{Properties: map[string]string{"auto.create.topics.enable": "true"}})
	s := opened(t, c, kafka.Config{}, kafka.Options{})
	for range 3 {
		topic := kafkatest.TopicName(t)
		published(t, s, []*event.Event{sinktest.Event(topic, "a", "1"), sinktest.Event(topic, "b", "2")})
		if got := c.ReadN(t, topic, 2, 30*time.Second); len(got) != 2 {
			t.Errorf("%d records", len(got))
		}
	}
}

func TestANameThatNoTopicCanHaveIsPermanentWithoutAskingTheBroker(t *testing.T) {
	t.Parallel()
	s := opened(t, nil, kafka.Config{Brokers: []string{"127.0.0.1:1"}}, kafka.Options{})
	for _, topic := range []string{"", ".", "..", "with space", "grüße", "a/b", strings.Repeat("a", 250)} {
		err := s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "k", "p")})[0]
		if event.ClassOf(err) != event.Permanent || event.ReasonOf(err) != "invalid_topic" {
			t.Errorf("%.20q: %v", topic, err)
		}
	}
}

func TestATopicThatMayNotBeWrittenToIsPermanentForItsEventsOnly(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	allowed, forbidden, seen := c.UniqueTopic(t), c.UniqueTopic(t), c.UniqueTopic(t)
	user := "User:" + kafkatest.Mallory
	c.Allow(t, user, allowed, sarama.AclOperationWrite, sarama.AclOperationDescribe)
	c.Allow(t, user, seen, sarama.AclOperationDescribe)
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.SASL),
		SASL: kafka.SASL{Mechanism: "plain", Username: kafkatest.Mallory, Password: kafkatest.MalloryPassword}}, kafka.Options{})
	testbed.Eventually(t, 20*time.Second, "the permission", func() error {
		return s.Publish(t.Context(), []*event.Event{sinktest.Event(allowed, "a", "0")})[0]
	})
	for range 3 {
		results := s.Publish(t.Context(), []*event.Event{sinktest.Event(forbidden, "a", "1"), sinktest.Event(seen, "b", "1"), sinktest.Event(seen, "b", "2"), sinktest.Event(allowed, "c", "1")})
		for _, i := range []int{0, 1, 2} {
			if event.ClassOf(results[i]) != event.Permanent || event.ReasonOf(results[i]) != "topic_not_authorized" {
				t.Errorf("event %d: %v (%v)", i, results[i], event.ClassOf(results[i]))
			}
		}
		if results[3] != nil {
			t.Errorf("the allowed event: %v", results[3])
		}
	}
}
