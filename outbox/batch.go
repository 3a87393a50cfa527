package outbox

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"
)

// A statement has at most so many messages, and so many bytes unless it is one message: the server holds all of them
// while it inserts.
const (
	maxRows  = 1000
	maxBytes = 8 << 20
)

// batch is the arguments of one statement.
type batch struct {
	ids, topics, keys, types, headers, payloads, notBefore array
}

func (b *batch) args() []any {
	var args []any
	for _, a := range []*array{&b.ids, &b.topics, &b.keys, &b.types, &b.headers, &b.payloads, &b.notBefore} {
		args = append(args, a.String())
	}
	return args
}

func (b *batch) size() int { return len(b.payloads.buf) + len(b.headers.buf) + len(b.keys.buf) }

// fill takes as many messages as fit, and returns how many these are.
func (b *batch) fill(messages []Message, column, traceparent, tracestate string) int {
	for i := range messages {
		if i == maxRows || i > 0 && b.size()+len(messages[i].Payload.data) > maxBytes {
			return i
		}
		b.add(&messages[i], column, traceparent, tracestate)
	}
	return len(messages)
}

func (b *batch) add(m *Message, column, traceparent, tracestate string) {
	id := m.ID
	if id == "" {
		id = NewID()
	}
	b.ids.add(id)
	b.topics.add(m.Topic)
	b.keys.addOrNull(m.Key)
	b.types.addOrNull(m.Type)
	b.headers.add(headers(m.Headers, traceparent, tracestate))
	switch {
	case m.Payload.kind == kindTombstone:
		b.payloads.null()
	case column == typeBytea:
		b.payloads.add(`\x` + hex.EncodeToString([]byte(m.Payload.data)))
	default:
		b.payloads.add(m.Payload.data)
	}
	if m.NotBefore.IsZero() {
		b.notBefore.null()
	} else {
		b.notBefore.add(m.NotBefore.UTC().Format(time.RFC3339Nano))
	}
}

// headers is the text of the headers' JSON object, with the trace unless the message has one of its own.
func headers(own map[string]string, traceparent, tracestate string) string {
	if _, traced := own["traceparent"]; !traced && traceparent != "" {
		own = maps.Clone(own)
		if own == nil {
			own = map[string]string{}
		}
		own["traceparent"] = traceparent
		delete(own, "tracestate")
		if tracestate != "" {
			own["tracestate"] = tracestate
		}
	}
	if len(own) == 0 {
		return "{}"
	}
	text, _ := json.Marshal(own) // strings can always be written
	return string(text)
}

// printable is what W3C Trace Context allows in the values of its headers.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
