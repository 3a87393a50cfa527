package kafka_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

const benchLanes, benchBatch = 32, 200

func benchEvents(topic string, lane int) []*event.Event {
	var events []*event.Event
	for i := range benchBatch {
		events = append(events, sinktest.Event(topic, fmt.Sprintf("%d/%d", lane, i%31), `{"text":"`+strings.Repeat("x", 390)+`"}`))
	}
	return events
}

// BenchmarkPublish is 32 lanes, each with a batch of 200 events of 400 bytes, on a real broker.
func BenchmarkPublish(b *testing.B) {
	c := kafkatest.Shared(b)
	topic := kafkatest.TopicName(b)
	c.CreateTopic(b, topic, 6, nil)
	s := opened(b, c, kafka.Config{}, kafka.Options{})
	var batches [benchLanes][]*event.Event
	for lane := range batches {
		batches[lane] = benchEvents(topic, lane)
	}
	published(b, s, batches[0])
	b.ReportAllocs()
	for b.Loop() {
		var lanes sync.WaitGroup
		for _, events := range batches {
			lanes.Go(func() {
				for _, err := range s.Publish(b.Context(), events) {
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		lanes.Wait()
	}
	b.ReportMetric(float64(b.N*benchLanes*benchBatch)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkSarama is the same records by sarama's producer alone: what BenchmarkPublish is measured by.
func BenchmarkSarama(b *testing.B) {
	c := kafkatest.Shared(b)
	topic := kafkatest.TopicName(b)
	c.CreateTopic(b, topic, 6, nil)
	config := sarama.NewConfig()
	config.Producer.Idempotent, config.Producer.RequiredAcks, config.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	config.MetricRegistry = metrics.NewRegistry()
	p, err := sarama.NewAsyncProducer(c.Brokers(), config)
	if err != nil {
		b.Fatal(err)
	}
	var events []*event.Event
	for lane := range benchLanes {
		events = append(events, benchEvents(topic, lane)...)
	}
	b.ReportAllocs()
	for b.Loop() {
		go func() {
			for _, e := range events {
				p.Input() <- &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(e.Key), Value: sarama.ByteEncoder(e.Payload), Timestamp: e.CreatedAt,
					Headers: []sarama.RecordHeader{{Key: []byte("message_id"), Value: []byte(event.FormatUUID(e.MessageID))}, {Key: []byte("event_type"), Value: []byte(e.Type)},
						{Key: []byte("created_at"), Value: []byte("2026-11-30T21:11:29.123456Z")}}}
			}
		}()
		for range events {
			select {
			case <-p.Successes():
			case err := <-p.Errors():
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N*benchLanes*benchBatch)/b.Elapsed().Seconds(), "events/s")
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}
