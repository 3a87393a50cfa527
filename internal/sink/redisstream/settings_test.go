package redisstream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestAnEntryHasExactlyTheseFieldsInThisOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	full := &event.Event{
		ID: event.IntID(0, 1), MessageID: [16]byte{0xab, 15: 1}, Topic: stream, Key: "k \"1\"", HasKey: true, Payload: []byte("\x00\xff{}"), Type: "OrderPlaced",
		CreatedAt: time.Date(2026, 11, 30, 21, 11, 29, 123456000, time.UTC),
		Headers:   []event.Header{{Name: "traceparent", Value: "00-1"}, {Name: "message_id", Value: "forged"}, {Name: "event_type", Value: "forged"}, {Name: "created_at", Value: "forged"}, {Name: `"ä`, Value: "\n"}},
	}
	bare := &event.Event{ID: event.IntID(0, 2), MessageID: [16]byte{15: 2}, Topic: stream}
	empty := &event.Event{ID: event.IntID(0, 3), MessageID: [16]byte{15: 3}, Topic: stream, HasKey: true, Payload: []byte{}, Headers: []event.Header{{Name: "event_type", Value: "the row's own"}}}
	published(t, s, full, bare, empty)
	var got []map[string]string
	var order [][]string
	for _, e := range server.Entries(t, stream) {
		got, order = append(got, e.Fields), append(order, e.Order)
		if !json.Valid([]byte(e.Fields["headers"])) {
			t.Errorf("headers %q", e.Fields["headers"])
		}
	}
	want := []map[string]string{
		{"id": "ab000000-0000-0000-0000-000000000001", "key": "k \"1\"", "type": "OrderPlaced", "payload": "\x00\xff{}",
			"headers": `{"traceparent":"00-1","\"ä":"\n","created_at":"2026-11-30T21:11:29.123456Z"}`},
		{"id": "00000000-0000-0000-0000-000000000002", "headers": `{}`},
		{"id": "00000000-0000-0000-0000-000000000003", "key": "", "payload": "", "headers": `{"event_type":"the row's own"}`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([][]string{{"id", "key", "type", "payload", "headers"}, {"id", "headers"}, {"id", "key", "payload", "headers"}}, order); d != "" {
		t.Error(d)
	}
}

func TestAStreamIsTrimmedOnlyWhenAskedTo(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, test := range []struct {
		name     string
		config   redisstream.Config
		min, max int
	}{
		{"never", redisstream.Config{}, 1001, 1001},
		{"about", redisstream.Config{MaxLen: 100}, 100, 299},
		{"exactly", redisstream.Config{MaxLen: 100, TrimExact: true}, 100, 100},
		{"exactly by age", redisstream.Config{MaxAge: time.Hour, TrimExact: true}, 1000, 1000},
		{"about by age", redisstream.Config{MaxAge: time.Hour}, 1000, 1001},
	} {
		stream := redistest.StreamName(t)
		server.Do(t, "xadd", stream, "1-1", "from", "1970")
		test.config.URL = server.URL()
		s := opened(t, test.config)
		for range 10 {
			var events []*event.Event
			for i := range 100 {
				events = append(events, sinktest.Event(stream, "k", fmt.Sprint(i)))
			}
			published(t, s, events...)
		}
		if n := server.Len(t, stream); n < test.min || n > test.max {
			t.Errorf("%s: %d entries, want %d to %d", test.name, n, test.min, test.max)
		}
	}
}

func TestAnEventThatIsSentTwiceIsOneEntryWhereTheServerCanTell(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var major, minor int
	if _, err := fmt.Sscanf(server.Version(t), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	want := 2
	if major > 8 || major == 8 && minor >= 6 {
		want = 1
	}
	no := false
	for idempotent, want := range map[*bool]int{nil: want, &no: 2} {
		s := opened(t, redisstream.Config{URL: server.URL(), Idempotent: idempotent})
		stream := redistest.StreamName(t)
		e := sinktest.Event(stream, "k", "p")
		for range 2 {
			published(t, s, e)
		}
		if n := server.Len(t, stream); n != want {
			t.Errorf("Redis %d.%d has %d entries of two equal events, want %d", major, minor, n, want)
		}
	}
}

func TestG3_TheOrderOfAKeyDoesNotHoldBackOthersWhereNoneIsWanted(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s, err := redisstream.New(redisstream.Config{URL: server.URL()}, redisstream.Options{})
	do(t, err)
	defer s.Close(t.Context())
	stream := redistest.StreamName(t)
	published(t, s, sinktest.Event(stream, "k", "1"), sinktest.Event(stream, "k", "2"))
	if n := server.Len(t, stream); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestAKeyThatHoldsSomethingElseFailsItsOwnEventsOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream, list := redistest.StreamName(t), redistest.StreamName(t)
	server.Do(t, "rpush", list, "x")
	results := s.Publish(t.Context(), []*event.Event{
		sinktest.Event(stream, "a", "1"), sinktest.Event(list, "a", "2"), sinktest.Event(stream, "a", "3"), sinktest.Event("", "a", "4"), sinktest.Event(stream, "b", "5"),
	})
	for i, reason := range []string{"", "wrong_type", "", "invalid_topic", ""} {
		if reason == "" && results[i] != nil || reason != "" && (event.ClassOf(results[i]) != event.Permanent || event.ReasonOf(results[i]) != reason) {
			t.Errorf("event %d: %v (%v), want %q", i, results[i], event.ClassOf(results[i]), reason)
		}
	}
	if n := server.Len(t, stream); n != 3 {
		t.Errorf("%d entries", n)
	}
}

func TestABatchLargerThanOneTransactionKeepsItsOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := opened(t, redisstream.Config{URL: server.URL()})
	stream := redistest.StreamName(t)
	var events []*event.Event
	var want []string
	for i := range 2500 {
		payload := fmt.Sprint(i)
		if i%100 == 7 {
			payload += strings.Repeat("x", 500_000)
		}
		events, want = append(events, sinktest.Event(stream, "k", payload)), append(want, payload)
	}
	published(t, s, events...)
	var got []string
	for _, e := range server.Entries(t, stream) {
		got = append(got, e.Fields["payload"])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d entries of %d, or another order", len(got), len(want))
	}
}
