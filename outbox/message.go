package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrInvalid is in the error for messages that can't be written as they are. Nothing was sent to the database then.
var ErrInvalid = errors.New("invalid message")

// Message is one event to be published.
type Message struct {
	// Topic is where the event goes: the Kafka topic, the Redis stream.
	Topic string
	// Key decides on order and partition: events with the same key are delivered in the order in which they were
	// committed. Empty: none (NULL in the table), and no order.
	Key string
	// Type is the name of the event's type, for consumers. Empty: none.
	Type string
	// Headers are the headers that consumers get, besides those that the relay adds (message_id, event_type, created_at).
	Headers map[string]string
	// Payload is made by JSON, Text, Bytes, Tombstone, or protobuf.Payload of the package beside this one.
	Payload Payload
	// ID is the message id, a UUID, by which consumers know an event that they get twice. Empty: a new one (NewID).
	ID string
	// NotBefore is when the event may be published, by the database's clock, at the earliest. Later events of its key wait
	// behind it. Zero: at once.
	NotBefore time.Time
}

// reserved are the headers that the relay adds: a header of the same name would never reach a consumer.
var reserved = map[string]bool{"message_id": true, "event_type": true, "created_at": true}

// problems is everything that is wrong with the message for a payload column of a type. It quotes no value: they may be
// personal.
func (m *Message) problems(column string) []error {
	var all []error
	wrong := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	text := func(what, s string) {
		switch {
		case strings.ContainsRune(s, 0):
			wrong("%s has a NUL character, which Postgres can't keep in a text", what)
		case !utf8.ValidString(s):
			wrong("%s is not valid UTF-8", what)
		}
	}
	if m.Topic == "" {
		wrong("the topic is empty")
	}
	text("the topic", m.Topic)
	text("the key", m.Key)
	text("the type", m.Type)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		switch {
		case name == "":
			wrong("a header has no name")
		case reserved[name]:
			wrong("header %s is one that the relay sets itself", name)
		}
		text(fmt.Sprintf("the name of header %q", name), name)
		text(fmt.Sprintf("header %q", name), m.Headers[name])
	}
	if m.ID != "" && !isUUID(m.ID) {
		wrong("the id is not a UUID of the form 01234567-89ab-cdef-0123-456789abcdef")
	}
	if y := m.NotBefore.UTC().Year(); !m.NotBefore.IsZero() && (y < 1 || y > 9999) {
		wrong("not before is in the year %d", y)
	}
	if err := m.Payload.fits(column); err != nil {
		all = append(all, err)
	}
	return all
}
