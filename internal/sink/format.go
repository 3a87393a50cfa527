package sink

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The headers that the raw format adds to those of the row. They win over a header of the row with the same name, so that
// no name comes twice.
const (
	HeaderMessageID = "message_id"
	HeaderEventType = "event_type"
	HeaderCreatedAt = "created_at"
)

// CreatedAtLayout is RFC 3339 in UTC with exactly six digits of a second: what Postgres keeps, and sortable as text.
const CreatedAtLayout = "2006-01-02T15:04:05.000000Z"

// FormatCreatedAt is the text of created_at in every format.
func FormatCreatedAt(t time.Time) string { return t.UTC().Format(CreatedAtLayout) }

// AppendCreatedAt appends FormatCreatedAt(t).
func AppendCreatedAt(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, CreatedAtLayout)
}

// RawHeaders appends the headers of the raw format to dst: those of the row in their order (traceparent among them), then
// message_id, event_type when the row has one, and created_at when it is known. A header of the row named event_type
// passes when the row itself has no event type.
func RawHeaders(dst []event.Header, e *event.Event) []event.Header {
	for _, h := range e.Headers {
		if !ownHeader(h.Name, e) {
			dst = append(dst, h)
		}
	}
	dst = append(dst, event.Header{Name: HeaderMessageID, Value: event.FormatUUID(e.MessageID)})
	if e.Type != "" {
		dst = append(dst, event.Header{Name: HeaderEventType, Value: e.Type})
	}
	if !e.CreatedAt.IsZero() {
		dst = append(dst, event.Header{Name: HeaderCreatedAt, Value: FormatCreatedAt(e.CreatedAt)})
	}
	return dst
}

// ownHeader says whether the relay itself sets the header of this name on e.
func ownHeader(name string, e *event.Event) bool {
	switch name {
	case HeaderMessageID:
		return true
	case HeaderEventType:
		return e.Type != ""
	case HeaderCreatedAt:
		return !e.CreatedAt.IsZero()
	default:
		return false
	}
}
