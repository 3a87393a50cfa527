package kafka_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

var _ sink.Sink = (*kafka.Sink)(nil)

// roomy is a topic's configuration that takes a payload of 1 MiB with what is around it.
var roomy = map[string]string{"max.message.bytes": strconv.Itoa(2 << 20)}

func TestKafkaPassesTheSuite(t *testing.T) {
	c := kafkatest.NewCluster(t, kafkatest.Options{})
	sinktest.Run(t, sinktest.Target{
		Lingering: []goleak.Option{breakerTimer},
		New: func(t testing.TB) sink.Sink {
			return open(t, c, kafka.Config{MaxMessageBytes: 4 << 20, Timeout: 3 * time.Second})
		},
		Topic: func(t testing.TB) string {
			topic := kafkatest.TopicName(t)
			c.CreateTopic(t, topic, 3, roomy)
			return topic
		},
		Received: func(t testing.TB, topic string, n int) []sinktest.Message { return received(t, c, topic, n) },
		Unacceptable: func(t testing.TB, topic string) *event.Event {
			e := sinktest.Event(topic, "k", "")
			e.Payload = make([]byte, 3<<20) // the relay takes it, the topic doesn't
			return e
		},
		Stop: func(t testing.TB) {
			if err := c.Stop(0); err != nil {
				t.Fatal(err)
			}
		},
		Start: func(t testing.TB) {
			if err := c.Start(context.Background(), 0); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// open makes a sink without closing it: the suite does.
func open(t testing.TB, c *kafkatest.Cluster, config kafka.Config) *kafka.Sink {
	t.Helper()
	if config.Brokers == nil {
		config.Brokers = c.Brokers()
	}
	config.Ordered = true
	s, err := kafka.New(config, kafka.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// received are the topic's records as the suite wants them.
func received(t testing.TB, c *kafkatest.Cluster, topic string, n int) []sinktest.Message {
	t.Helper()
	var messages []sinktest.Message
	for _, r := range c.ReadN(t, topic, n, 30*time.Second) {
		m := sinktest.Message{Key: string(r.Key), HasKey: r.Key != nil, Payload: r.Value, Headers: map[string]string{}}
		for _, h := range r.Headers {
			if _, twice := m.Headers[h.Key]; twice {
				t.Errorf("the header %s comes twice", h.Key)
			}
			m.Headers[h.Key] = string(h.Value)
		}
		messages = append(messages, m)
	}
	return messages
}
