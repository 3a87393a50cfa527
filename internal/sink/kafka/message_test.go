package kafka

import (
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestNoMessageIsLargerThanItsEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &event.Event{
			Topic: "t", Key: rapid.String().Draw(t, "key"), HasKey: rapid.Bool().Draw(t, "has key"),
			Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), Type: rapid.String().Draw(t, "type"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			e.Headers = append(e.Headers, event.Header{Name: rapid.String().Draw(t, "name"), Value: rapid.String().Draw(t, "value")})
		}
		r := newRound([]*event.Event{e}, []int{0})
		if estimate, size := messageSize(e), r.out[0].ByteSize(2); size > estimate {
			t.Fatalf("sarama counts %d bytes, the estimate is %d", size, estimate)
		}
	})
}

func TestAnEmptyTextIsNotNull(t *testing.T) {
	e := &event.Event{Topic: "t", HasKey: true, Payload: []byte{}, Headers: []event.Header{{Name: "h"}}}
	m := newRound([]*event.Event{e}, []int{0}).out[0]
	key, _ := m.Key.Encode()
	value, _ := m.Value.Encode()
	if key == nil || value == nil || m.Headers[0].Value == nil {
		t.Errorf("key %v, value %v, header %v", key, value, m.Headers[0].Value)
	}
	m = newRound([]*event.Event{{Topic: "t"}}, []int{0}).out[0]
	if m.Key != nil || m.Value != nil {
		t.Errorf("key %v, value %v of an event that has neither", m.Key, m.Value)
	}
}

func TestAnswersAfterARoundWasLeftChangeNothing(t *testing.T) {
	events := []*event.Event{{Topic: "t", Key: "k", HasKey: true}, {Topic: "t", Key: "k", HasKey: true}, {Topic: "t", Key: "l", HasKey: true}}
	r := newRound(events, []int{0, 1, 2})
	for range events {
		r.count()
	}
	r.seal(0)
	if !r.out[0].answer(sarama.ErrOutOfBrokers) {
		t.Error("the second event of the key is still without an answer")
	}
	r.leave()
	for i := range r.out {
		if r.out[i].answer(nil); i > 0 && r.out[i].answered || i == 0 && r.out[i].err == nil {
			t.Errorf("event %d took a late answer", i)
		}
	}
	select {
	case <-r.done:
		t.Error("the round that was left says that it is complete")
	default:
	}
}

func TestOnlyNamesThatKafkaTakesAreTopics(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, strings.Repeat("a", 249): true,
		"": false, ".": false, "..": false, strings.Repeat("a", 250): false, "a b": false, "é": false, "a/b": false, "a\n": false,
	} {
		if validTopic(name) != want {
			t.Errorf("%.20q: %v", name, !want)
		}
	}
}
