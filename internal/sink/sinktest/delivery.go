package sinktest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func payloadsArrive(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	values := map[string][]byte{
		"empty":     {},
		"null":      nil,
		"json":      []byte(`{"a": 1, "b":[true,null,"\u00e9"],  "n":12345678901234567890.10}`),
		"unicode":   []byte("grüße, 世界 🎈 \u2028 \\ \" \t"),
		"lines":     []byte("one\r\ntwo\nthree"),
		"one byte":  []byte("x"),
		"very long": []byte(repeat("0123456789abcdef", target.MaxPayload)),
	}
	if !target.Text {
		values["every byte"] = make([]byte, 256)
		for i := range values["every byte"] {
			values["every byte"][i] = byte(i)
		}
		values["nul"] = []byte("a\x00b\x00")
		values["no utf-8"] = []byte("\xff\xfe\x80")
	}
	var events []*event.Event
	for _, key := range slices.Sorted(maps.Keys(values)) {
		e := Event(topic, key, "")
		e.Payload = values[key]
		events = append(events, e)
	}
	deliver(t, s, events...)
	seen := map[string]bool{}
	for _, m := range target.Received(t, topic, len(events)) {
		want, got := values[m.Key], m.Payload
		if !bytes.Equal(want, got) {
			t.Errorf("%s: got %s, want %s", m.Key, abbreviate(got), abbreviate(want))
		}
		if !target.NoNull && (want == nil) != (got == nil) {
			t.Errorf("%s: NULL is %v, want %v", m.Key, got == nil, want == nil)
		}
		if seen[m.Key] {
			t.Errorf("%s came twice", m.Key)
		}
		seen[m.Key] = true
	}
	if len(seen) != len(values) {
		t.Errorf("%d of %d arrived", len(seen), len(values))
	}
}

func keysArrive(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	want := []Message{{Key: "a", HasKey: true}, {Key: "", HasKey: true}, {}, {Key: "schlüssel 鍵 🔑", HasKey: true}, {Key: repeat("k", 2000), HasKey: true}}
	var events []*event.Event
	for i, m := range want {
		e := Event(topic, m.Key, fmt.Sprint("payload ", i))
		e.HasKey = m.HasKey
		events = append(events, e)
		want[i].Payload = e.Payload
	}
	deliver(t, s, events...)
	got := target.Received(t, topic, len(want))
	for _, w := range want {
		i := slices.IndexFunc(got, func(m Message) bool { return bytes.Equal(m.Payload, w.Payload) })
		if i < 0 || got[i].Key != w.Key || got[i].HasKey != w.HasKey {
			t.Errorf("the event with key %.20q (set: %v) arrived as %+v", w.Key, w.HasKey, got[max(i, 0)])
		}
	}
}

func headersArrive(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	e := Event(topic, "k", "p")
	e.Headers = []event.Header{
		{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{Name: "empty", Value: ""}, {Name: "message_id", Value: "forged"}, {Name: "quoted", Value: `"grüße" {}`},
	}
	bare := Event(topic, "bare", "p")
	bare.Type = ""
	deliver(t, s, e, bare)
	for _, m := range target.Received(t, topic, 2) {
		want := map[string]string{sink.HeaderMessageID: event.FormatUUID(e.MessageID), sink.HeaderEventType: "Tested",
			sink.HeaderCreatedAt: sink.FormatCreatedAt(e.CreatedAt), "traceparent": e.Headers[0].Value, "empty": "", "quoted": e.Headers[3].Value}
		if m.Key == "bare" {
			want = map[string]string{sink.HeaderMessageID: event.FormatUUID(bare.MessageID), sink.HeaderCreatedAt: sink.FormatCreatedAt(bare.CreatedAt)}
		}
		if !maps.Equal(m.Headers, want) {
			t.Errorf("%s: headers %v, want %v", m.Key, m.Headers, want)
		}
	}
}

func nothingToPublish(t *testing.T, target *Target) {
	s := target.open(t)
	publish(t, t.Context(), s)
}

func keysKeepTheirOrder(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	const keys, calls, batch = 7, 20, 50
	want := map[string][]string{}
	for range calls {
		var events []*event.Event
		for i := range batch {
			key := fmt.Sprint("key ", i%keys)
			e := Event(topic, key, fmt.Sprint(len(want[key])))
			want[key] = append(want[key], string(e.Payload))
			events = append(events, e)
		}
		deliver(t, s, events...)
	}
	got := payloads(target.Received(t, topic, calls*batch))
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s: %d payloads of %d, or in another order: %.200v", key, len(got[key]), len(want[key]), got[key])
		}
	}
}

func manyCallers(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	const lanes, calls, batch = 16, 4, 50
	var callers sync.WaitGroup
	for lane := range lanes {
		callers.Go(func() {
			for call := range calls {
				var events []*event.Event
				for i := range batch {
					events = append(events, Event(topic, fmt.Sprint("lane ", lane), fmt.Sprint(call*batch+i)))
				}
				for i, err := range s.Publish(t.Context(), events) {
					if err != nil {
						t.Errorf("lane %d, event %d: %v", lane, i, err)
						return
					}
				}
			}
		})
	}
	callers.Wait()
	got := payloads(target.Received(t, topic, lanes*calls*batch))
	for lane := range lanes {
		for i := range calls * batch {
			of := got[fmt.Sprint("lane ", lane)]
			if len(of) != calls*batch || of[i] != fmt.Sprint(i) {
				t.Fatalf("lane %d: %d messages, or in another order: %.200v", lane, len(of), of)
			}
		}
	}
}

func refusedEvent(t *testing.T, target *Target) {
	s, topic := target.open(t), target.Topic(t)
	var events []*event.Event
	for i := range 40 {
		events = append(events, Event(topic, fmt.Sprint("key ", i%4), fmt.Sprint(i)))
	}
	refused := []int{5, 6, 23}
	for _, i := range refused {
		bad := target.Unacceptable(t, topic)
		bad.Key, bad.HasKey = events[i].Key, true
		events[i] = bad
	}
	want := map[string][]string{}
	for i, err := range publish(t, t.Context(), s, events...) {
		bad := slices.Contains(refused, i)
		switch {
		case bad && (err == nil || event.ClassOf(err) != event.Permanent || event.ReasonOf(err) == "unknown"):
			t.Errorf("the refused event %d: %v (%v)", i, err, event.ClassOf(err))
		case !bad && err != nil:
			t.Errorf("the good event %d: %v", i, err)
		case !bad:
			want[events[i].Key] = append(want[events[i].Key], string(events[i].Payload))
		}
	}
	got := payloads(target.Received(t, topic, len(events)-len(refused)))
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s: got %v, want %v", key, got[key], want[key])
		}
	}
	deliver(t, s, Event(topic, "after", "it goes on"))
}
