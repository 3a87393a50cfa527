package kafka

import (
	"unsafe"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The encoders are the event itself under another name, so that a message costs no allocation of its own for them.
type (
	keyOf   event.Event
	valueOf event.Event
)

// Encode returns the key's bytes, which sarama only reads. An empty key must not become a nil slice, which is no key.
func (k *keyOf) Encode() ([]byte, error) {
	if k.Key == "" {
		return []byte{}, nil
	}
	return unsafe.Slice(unsafe.StringData(k.Key), len(k.Key)), nil
}

func (k *keyOf) Length() int { return len(k.Key) }

func (v *valueOf) Encode() ([]byte, error) { return v.Payload, nil }

func (v *valueOf) Length() int { return len(v.Payload) }

// ownHeaders is the most that the raw format adds to a row's headers.
const ownHeaders = 3

// fill makes m the message of e. Its headers are appended to headers; scratch is any slice to work in. Both are returned
// for the next message.
func fill(m *sarama.ProducerMessage, e *event.Event, headers []sarama.RecordHeader, scratch []event.Header) ([]sarama.RecordHeader, []event.Header) {
	m.Topic = e.Topic
	if e.HasKey {
		m.Key = (*keyOf)(e)
	}
	if e.Payload != nil {
		m.Value = (*valueOf)(e)
	}
	m.Timestamp = e.CreatedAt // zero: sarama takes the present time
	scratch = sink.RawHeaders(scratch[:0], e)
	start := len(headers)
	for _, h := range scratch {
		headers = append(headers, sarama.RecordHeader{Key: bytesOf(h.Name), Value: bytesOf(h.Value)})
	}
	m.Headers = headers[start:len(headers):len(headers)]
	return headers, scratch
}

// bytesOf is the string's bytes without a copy, for those who only read. Empty is not nil: a nil value is a null header.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// messageSize is what sarama counts for the event's message, in bytes: an estimate, never too small.
func messageSize(e *event.Event) int {
	const perRecord, perHeader = 36, 10 // the longest form of all numbers
	n := perRecord + len(e.Key) + len(e.Payload) + ownHeaders*perHeader +
		len(sink.HeaderMessageID) + len("00000000-0000-0000-0000-000000000000") +
		len(sink.HeaderEventType) + len(e.Type) + len(sink.HeaderCreatedAt) + len(sink.CreatedAtLayout)
	for i := range e.Headers {
		n += perHeader + len(e.Headers[i].Name) + len(e.Headers[i].Value)
	}
	return n
}

// validTopic says whether a topic can have this name: org.apache.kafka.common.internals.Topic.validate.
func validTopic(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 249 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// sameKey says whether the order of a and b matters.
func sameKey(a, b *event.Event) bool {
	return a.HasKey && b.HasKey && a.Key == b.Key && a.ID.Table == b.ID.Table
}

// keyID names a key that has an order.
type keyID struct {
	table int32
	key   string
}
