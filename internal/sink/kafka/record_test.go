package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func closed(t testing.TB, s *kafka.Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestARecordIsTheEventByteForByte(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	created := time.Date(2026, 11, 30, 21, 11, 29, 123456000, time.UTC)
	e := &event.Event{
		ID: event.IntID(0, 7), MessageID: [16]byte{0: 0x0a, 15: 1}, Key: "k", HasKey: true, Payload: []byte("{\"a\": 1.0}\x00\xff"),
		Headers: []event.Header{{Name: "z", Value: ""}, {Name: "created_at", Value: "forged"}, {Name: "a", Value: "grüße"}}, Type: "Placed", CreatedAt: created,
	}
	want := kafkatest.Record{Key: []byte("k"), Value: e.Payload, Timestamp: created.Truncate(time.Millisecond), Headers: []kafkatest.Header{
		{Key: "z", Value: []byte("")}, {Key: "a", Value: []byte("grüße")}, {Key: "message_id", Value: []byte("0a000000-0000-0000-0000-000000000001")},
		{Key: "event_type", Value: []byte("Placed")}, {Key: "created_at", Value: []byte("2026-11-30T21:11:29.123456Z")},
	}}
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := c.UniqueTopic(t)
		e.Topic = topic
		published(t, opened(t, c, kafka.Config{Compression: compression}, kafka.Options{}), []*event.Event{e})
		got := c.ReadN(t, topic, 1, 30*time.Second)[0]
		got.Timestamp = got.Timestamp.UTC()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", compression, d)
		}
	}
}

func TestATombstoneAndAnEmptyValueAreTwoThings(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	tombstone, empty := sinktest.Event(topic, "k", ""), sinktest.Event(topic, "k", "")
	tombstone.Payload = nil
	published(t, opened(t, c, kafka.Config{}, kafka.Options{}), []*event.Event{tombstone, empty})
	got := c.ReadN(t, topic, 2, 30*time.Second)
	if got[0].Value != nil || got[1].Value == nil || len(got[1].Value) != 0 {
		t.Errorf("values %v and %v", got[0].Value, got[1].Value)
	}
}

func TestEveryProtocolVersionWorks(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, version := range []string{"auto", "2.1.0", "3.9.0", "4.1.0"} {
		topic := c.UniqueTopic(t)
		s := opened(t, c, kafka.Config{Version: version}, kafka.Options{})
		published(t, s, []*event.Event{sinktest.Event(topic, "k", version)})
		if got := c.ReadN(t, topic, 1, 30*time.Second); string(got[0].Value) != version {
			t.Errorf("%s: %q", version, got[0].Value)
		}
	}
}

func TestNeitherALostNorARefusedConnectionTellsThePassword(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.SASL),
		SASL: kafka.SASL{Mechanism: "plain", Username: kafkatest.Alice, Password: "pa55word"}}, kafka.Options{})
	err := s.Publish(t.Context(), []*event.Event{sinktest.Event("t", "k", "p")})[0]
	if err == nil || strings.Contains(err.Error(), "pa55word") {
		t.Errorf("Publish = %v", err)
	}
}
