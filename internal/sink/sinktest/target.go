package sinktest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Target is a sink with the server it delivers to. New and Received are required; a nil hook says that the sink has no
// such thing, and its tests are left out.
type Target struct {
	// New makes a sink on the running server. The suite closes it.
	New func(t testing.TB) sink.Sink
	// Topic makes a place of its own for one test and returns its name; nil: any new name will do.
	Topic func(t testing.TB) string
	// Received waits until at least n messages were delivered to the topic and returns all of them, those of one key in
	// the order in which a consumer sees them.
	Received func(t testing.TB, topic string, n int) []Message

	// Unacceptable makes an event for the topic that the server refuses for ever, whatever its neighbours.
	Unacceptable func(t testing.TB, topic string) *event.Event
	// Stop stops the server, Start starts it again with what it had and waits until it serves.
	Stop, Start func(t testing.TB)

	// Text says that payloads are texts without NUL bytes; otherwise any bytes must arrive.
	Text bool
	// NoNull says that a NULL payload arrives as an empty one.
	NoNull bool
	// NoHeaders says that Message.Headers is not filled.
	NoHeaders bool
	// MaxPayload is the largest payload tried, in bytes; default 1 MiB.
	MaxPayload int
	// Lingering are goroutines of others that may outlive Close for a while, which is to be told in the sink's doc.
	Lingering []goleak.Option
	// Bound is how long Publish may take while the server is down; default 45 s.
	Bound time.Duration
}

// Message is one delivered message.
type Message struct {
	Key     string
	HasKey  bool
	Payload []byte            // nil: NULL
	Headers map[string]string // those of the row and the relay's own
}

func (target *Target) fill() {
	if target.Topic == nil {
		target.Topic = func(t testing.TB) string { return fmt.Sprintf("t%d", ids.Add(1)) }
	}
	if target.MaxPayload == 0 {
		target.MaxPayload = 1 << 20
	}
	if target.Bound == 0 {
		target.Bound = 45 * time.Second
	}
}

var ids atomic.Int64

// Event is a well-formed event with an id of its own, for the suite and for a sink's own tests. An empty key is NULL.
func Event(topic, key, payload string) *event.Event {
	id := ids.Add(1)
	e := &event.Event{
		ID: event.IntID(0, id), Topic: topic, Key: key, HasKey: key != "", Payload: []byte(payload), Type: "Tested",
		CreatedAt: time.Now().UTC().Truncate(time.Microsecond), Path: event.WAL,
	}
	for i := range 8 {
		e.MessageID[15-i] = byte(id >> (8 * i))
	}
	e.MessageID[6] = 0x40
	return e
}

// open makes the sink and closes it when the test ends; then none of its goroutines may be left.
func (target *Target) open(t *testing.T) sink.Sink {
	t.Helper()
	before := goleak.IgnoreCurrent()
	s := target.New(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), target.Bound)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := goleak.Find(append(target.Lingering, before)...); err != nil && !t.Failed() {
			t.Errorf("after Close: %v", err)
		}
	})
	return s
}

// publish publishes and demands one result for each event.
func publish(t testing.TB, ctx context.Context, s sink.Sink, events ...*event.Event) []error {
	t.Helper()
	results := s.Publish(ctx, events)
	if len(results) != len(events) {
		t.Fatalf("Publish returned %d results for %d events", len(results), len(events))
	}
	return results
}

// deliver publishes and demands that all events are acknowledged.
func deliver(t testing.TB, s sink.Sink, events ...*event.Event) {
	t.Helper()
	for i, err := range publish(t, t.Context(), s, events...) {
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, len(events), err)
		}
	}
}

// only demands that every result is nil or of one of the classes.
func only(t testing.TB, results []error, classes ...event.Class) {
	t.Helper()
	for i, err := range results {
		ok := err == nil
		for _, c := range classes {
			ok = ok || event.ClassOf(err) == c
		}
		if !ok {
			t.Errorf("result %d is %v (%v)", i, err, event.ClassOf(err))
		}
	}
}

// payloads are the delivered payloads by key, in order.
func payloads(messages []Message) map[string][]string {
	m := map[string][]string{}
	for _, msg := range messages {
		m[msg.Key] = append(m[msg.Key], string(msg.Payload))
	}
	return m
}

func abbreviate(b []byte) string {
	if len(b) > 60 {
		return fmt.Sprintf("%q… (%d bytes)", b[:60], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func repeat(s string, n int) string { return strings.Repeat(s, n/len(s)+1)[:n] }
