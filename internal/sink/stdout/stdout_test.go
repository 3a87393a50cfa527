package stdout_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ sink.Sink = (*stdout.Sink)(nil)

// output collects what is written, a line at a time.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

type line struct {
	MessageID     string `json:"message_id"`
	Topic         string
	Key           *string
	EventType     *string `json:"event_type"`
	Payload       json.RawMessage
	PayloadBase64 []byte `json:"payload_base64"`
	Headers       map[string]string
	CreatedAt     *string `json:"created_at"`
}

// message reads the line back into what the suite compares. It can't tell the JSON string "a" from the text a, nor the
// JSON document null from NULL; the suite has neither.
func (l *line) message(t testing.TB) sinktest.Message {
	m := sinktest.Message{Payload: l.Payload, Headers: l.Headers}
	if l.Key != nil {
		m.Key, m.HasKey = *l.Key, true
	}
	switch {
	case l.PayloadBase64 != nil:
		m.Payload = l.PayloadBase64
	case string(l.Payload) == "null":
		m.Payload = nil
	case l.Payload[0] == '"':
		var text string
		if err := json.Unmarshal(l.Payload, &text); err != nil {
			t.Fatal(err)
		}
		m.Payload = []byte(text)
	}
	delete(m.Headers, "message_id") // the row's own; the relay's is a field
	m.Headers["message_id"] = l.MessageID
	if l.EventType != nil {
		m.Headers["event_type"] = *l.EventType
	}
	if l.CreatedAt != nil {
		m.Headers["created_at"] = *l.CreatedAt
	}
	return m
}

func TestStdoutPassesTheSuite(t *testing.T) {
	var out output
	sinktest.Run(t, sinktest.Target{
		New: func(testing.TB) sink.Sink { return stdout.New(&out) },
		Received: func(t testing.TB, topic string, _ int) []sinktest.Message {
			var messages []sinktest.Message
			lines := bufio.NewScanner(strings.NewReader(out.String()))
			lines.Buffer(nil, 1<<22)
			for lines.Scan() {
				var l line
				if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
					t.Fatalf("%v: %.200s", err, lines.Text())
				}
				if l.Topic == topic {
					messages = append(messages, l.message(t))
				}
			}
			if lines.Err() != nil {
				t.Fatal(lines.Err())
			}
			return messages
		},
	})
}

func TestEachEventIsOneLineWithExactlyTheseFields(t *testing.T) {
	created := time.Date(2026, 11, 30, 21, 11, 29, 123456000, time.UTC)
	full := &event.Event{
		ID: event.IntID(0, -7), MessageID: [16]byte{0: 0xab, 15: 1}, Topic: "orders", Key: "a\"b", HasKey: true,
		Payload: []byte(`{"b": 1.10, "a":[]}`), Headers: []event.Header{{Name: "z", Value: "1"}, {Name: "a", Value: "\x01\t"}},
		Type: "Placed", CreatedAt: created, Path: event.Poll,
	}
	bare := &event.Event{ID: event.UUIDID(0, [16]byte{15: 2}), Topic: "orders"}
	payload := func(p string) *event.Event { e := *bare; e.Payload = []byte(p); return &e }
	for _, test := range []struct {
		name string
		e    *event.Event
		want string
	}{
		{"all set", full, `{"id":-7,"message_id":"ab000000-0000-0000-0000-000000000001","topic":"orders","key":"a\"b","event_type":"Placed",` +
			`"payload":{"b": 1.10, "a":[]},"headers":{"z":"1","a":"\u0001\t"},"created_at":"2026-11-30T21:11:29.123456Z","path":"poll"}`},
		{"nothing set", bare, line2("null")},
		{"json over several lines", payload("{\n  \"a\": \"x\\ny\",\r\n \"b\": 1}\n"), line2(`{"a":"x\ny","b":1}`)},
		{"text", payload("a\nb"), line2(`"a\nb"`)},
		{"empty", payload(""), line2(`""`)},
		{"no utf-8", payload("\xff\x00"), line2(`null,"payload_base64":"/wA="`)},
		{"no utf-8 within what looks like json", payload("\"\xff\""), line2(`null,"payload_base64":"Iv8i"`)},
	} {
		var out output
		s := stdout.New(&out)
		if err := s.Publish(t.Context(), []*event.Event{test.e})[0]; err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != test.want+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		if !json.Valid([]byte(out.String())) {
			t.Errorf("%s: no valid JSON", test.name)
		}
	}
}

func line2(payload string) string {
	return `{"id":"00000000-0000-0000-0000-000000000002","message_id":"00000000-0000-0000-0000-000000000000","topic":"orders","key":null,"event_type":null,` +
		`"payload":` + payload + `,"headers":{},"created_at":null,"path":"wal"}`
}

func TestAReaderThatHasGoneIsUnavailableForEver(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := stdout.New(w)
	if err := s.Publish(t.Context(), []*event.Event{sinktest.Event("t", "k", "p")})[0]; err != nil {
		t.Fatal(err)
	}
	r.Close()
	for range 2 {
		if err := s.Publish(t.Context(), []*event.Event{sinktest.Event("t", "k", "p")})[0]; event.ClassOf(err) != event.Unavailable {
			t.Errorf("Publish = %v", err)
		}
		if err := s.Probe(t.Context()); event.ClassOf(err) != event.Unavailable {
			t.Errorf("Probe = %v", err)
		}
	}
}

// upTo fails once when it has taken so many bytes.
type upTo struct {
	output
	left int
}

func (u *upTo) Write(p []byte) (int, error) {
	if u.left < 0 || len(p) <= u.left {
		return u.output.Write(p)
	}
	n, _ := u.output.Write(p[:u.left])
	u.left = -1
	return n, errors.New("no space left on device")
}

func TestWhatWasWrittenWholeIsAcknowledgedAndATornLineIsEnded(t *testing.T) {
	w := &upTo{left: 300}
	s := stdout.New(w)
	events := []*event.Event{sinktest.Event("t", "a", "1"), sinktest.Event("t", "b", "2"), sinktest.Event("t", "c", "3")}
	results := s.Publish(t.Context(), events)
	if results[0] != nil || event.ClassOf(results[1]) != event.Unavailable || event.ClassOf(results[2]) != event.Unavailable {
		t.Fatalf("results = %v", results)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Fatalf("a full disk may heal, but Probe = %v", err)
	}
	for _, err := range s.Publish(t.Context(), events[1:]) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var whole int
	for _, l := range strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n") {
		if json.Valid([]byte(l)) {
			whole++
		}
	}
	if whole != 3 {
		t.Errorf("%d whole lines in\n%s", whole, w.String())
	}
}

func TestAReaderThatTakesNothingHoldsNobodyBeyondItsContext(t *testing.T) {
	r, w := io.Pipe()
	s := stdout.New(w)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 2 { // the first is stuck in its write, the second waits for it
		if err := s.Publish(ctx, []*event.Event{sinktest.Event("t", "k", "p")})[0]; event.ClassOf(err) != event.Unavailable {
			t.Errorf("Publish = %v", err)
		}
	}
	if err := s.Probe(ctx); err == nil {
		t.Error("Probe succeeds while a write is stuck")
	}
	if err := s.Close(ctx); err == nil {
		t.Error("Close says nothing of the stuck write")
	}
	r.Close()
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func BenchmarkPublish(b *testing.B) {
	events := make([]*event.Event, 200)
	for i := range events {
		events[i] = sinktest.Event("orders", "some key", `{"order_id":123456,"total":"12.50","note":"`+strings.Repeat("x", 340)+`"}`)
	}
	s := stdout.New(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		s.Publish(b.Context(), events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
}
