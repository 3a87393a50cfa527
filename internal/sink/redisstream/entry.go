package redisstream

import (
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The fields of an entry, in their order. key, type and payload are left out when they are NULL.
const (
	fieldID      = "id"      // the message id
	fieldKey     = "key"     //
	fieldType    = "type"    // event_type
	fieldPayload = "payload" // its bytes as stored
	fieldHeaders = "headers" // a JSON object of strings
)

// maxArgs is the most arguments an XADD of ours has: the command and its stream, three of IDMP, three of trimming, the
// id, and five fields.
const maxArgs = 2 + 3 + 3 + 1 + 10

// entry is one event with what is made of it for XADD.
type entry struct {
	*event.Event
	id      string
	headers string
}

// size is the bytes of its fields.
func (e *entry) size() int {
	n := len(fieldID) + len(e.id) + len(fieldHeaders) + len(e.headers)
	if e.HasKey {
		n += len(fieldKey) + len(e.Key)
	}
	if e.Type != "" {
		n += len(fieldType) + len(e.Type)
	}
	if e.Payload != nil {
		n += len(fieldPayload) + len(e.Payload)
	}
	return n
}

// form is what the XADDs of one exchange have in common.
type form struct {
	producer string // "": no IDMP
	trim     string // maxlen or minid; "": none
	operator string // ~ or =
	limit    any    // the number of entries, or the smallest id
}

// appendArgs appends the XADD of an entry. Strings go in by pointer, which costs nothing.
func (f *form) appendArgs(args []any, e *entry) []any {
	args = append(args, "xadd", &e.Topic)
	if f.producer != "" {
		args = append(args, "idmp", &f.producer, &e.id)
	}
	if f.trim != "" {
		args = append(args, f.trim, f.operator, f.limit)
	}
	args = append(args, "*", fieldID, &e.id)
	if e.HasKey {
		args = append(args, fieldKey, &e.Key)
	}
	if e.Type != "" {
		args = append(args, fieldType, &e.Type)
	}
	if e.Payload != nil {
		args = append(args, fieldPayload, e.Payload)
	}
	return append(args, fieldHeaders, &e.headers)
}

// newEntries makes the entries of events, with one allocation for all headers.
func newEntries(events []*event.Event) []entry {
	entries := make([]entry, len(events))
	ends := make([]int, len(events))
	var all []byte
	for i, e := range events {
		all = appendHeaders(all, e)
		ends[i] = len(all)
		entries[i] = entry{Event: e, id: event.FormatUUID(e.MessageID)}
	}
	text := string(all)
	for i, start := 0, 0; i < len(entries); i++ {
		entries[i].headers = text[start:ends[i]]
		start = ends[i]
	}
	return entries
}

// appendHeaders appends the headers of the raw format as a JSON object, without those that have a field of their own.
func appendHeaders(dst []byte, e *event.Event) []byte {
	dst = append(dst, '{')
	first := true
	name := func(s string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = sink.AppendJSONString(dst, s)
		dst = append(dst, ':')
	}
	created := !e.CreatedAt.IsZero()
	for _, h := range e.Headers {
		switch {
		case h.Name == sink.HeaderMessageID, h.Name == sink.HeaderEventType && e.Type != "", h.Name == sink.HeaderCreatedAt && created:
			continue // the relay's own wins
		}
		name(h.Name)
		dst = sink.AppendJSONString(dst, h.Value)
	}
	if created {
		name(sink.HeaderCreatedAt)
		dst = append(dst, '"')
		dst = sink.AppendCreatedAt(dst, e.CreatedAt)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}
