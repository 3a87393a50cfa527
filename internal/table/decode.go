package table

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Decode makes an event of a row. The fields are only borrowed; the event has copies. An error means that the data
// isn't what Postgres would send. What somebody has written into the row can't cause one, only an event that is Invalid.
func (d *Decoder) Decode(fields []Field) (Row, error) {
	if len(fields) != d.columns {
		return Row{}, fmt.Errorf("decode row of %s: %d fields for %d columns", d.table, len(fields), d.columns)
	}
	row := Row{Event: new(event.Event)}
	if src, err := d.decode(fields, &row); err != nil {
		return Row{}, fmt.Errorf("decode row of %s: column %q: %w", d.table, src.name, err)
	}
	return row, nil
}

// decode fills in a row. An error comes with the source that it is about. (No loop over methods: then row would escape.)
func (d *Decoder) decode(fields []Field, row *Row) (*source, error) {
	if src, err := d.decodeID(fields, row.Event); err != nil {
		return src, err
	}
	if src, err := d.decodeMessageID(fields, row.Event); err != nil {
		return src, err
	}
	if src, err := d.decodeTopic(fields, row.Event); err != nil {
		return src, err
	}
	if src, err := d.decodeBody(fields, row.Event); err != nil {
		return src, err
	}
	if src, err := d.decodeWords(fields, row); err != nil {
		return src, err
	}
	return d.decodeLife(fields, row)
}

// field is the value of a source; a NULL when the table has no such column.
func field(fields []Field, s *source) (Field, error) {
	if s.at < 0 {
		return Field{Format: Null}, nil
	}
	return fields[s.at], fields[s.at].check()
}

func (d *Decoder) decodeID(fields []Field, e *event.Event) (*source, error) {
	f, err := field(fields, &d.id)
	switch {
	case err != nil:
		return &d.id, err
	case f.Format == Null:
		return &d.id, errNullID
	case d.id.kind == kindUUID:
		u, err := uuid(f)
		if err != nil {
			return &d.id, err
		}
		e.ID = event.UUIDID(d.table.Index, u)
	default:
		n, err := integer(f, d.id.kind)
		if err != nil {
			return &d.id, err
		}
		e.ID = event.IntID(d.table.Index, n)
	}
	return nil, nil
}

// decodeMessageID reads or derives the message id. A text that isn't a uuid is derived from, too, so that it stays
// stable.
func (d *Decoder) decodeMessageID(fields []Field, e *event.Event) (*source, error) {
	f, err := field(fields, &d.message)
	switch {
	case err != nil:
		return &d.message, err
	case f.Format == Null && e.ID.UUID:
		e.MessageID = e.ID.Bytes()
	case f.Format == Null:
		d.scratch = append(append(d.scratch[:0], d.prefix...), e.ID.String()...)
		e.MessageID = derive(d.scratch)
	case d.message.kind == kindUUID:
		e.MessageID, err = uuid(f)
		return &d.message, err
	default:
		if e.MessageID, err = parseUUID(bytes.TrimRight(f.Data, " ")); err != nil {
			d.scratch = append(append(d.scratch[:0], d.prefix...), f.Data...)
			e.MessageID = derive(d.scratch)
		}
	}
	return nil, nil
}

// derive makes a uuid of version 8 (RFC 9562, section 5.8) of a name.
func derive(name []byte) (u [16]byte) {
	sum := sha256.Sum256(name)
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

func (d *Decoder) decodeTopic(fields []Field, e *event.Event) (*source, error) {
	d.scratch = d.scratch[:0]
	for i := range d.topic {
		p := &d.topic[i]
		if p.from.at < 0 {
			d.scratch = append(d.scratch, p.text...)
			continue
		}
		f, err := field(fields, &p.from)
		if err != nil {
			return &p.from, err
		}
		if f.Format == Null {
			e.Invalid = fmt.Errorf("column %q, of which the topic is made, is NULL", p.from.name)
			return nil, nil
		}
		if d.scratch, err = appendWord(d.scratch, f, p.from.kind); err != nil {
			return &p.from, err
		}
	}
	if len(d.scratch) == 0 {
		e.Invalid = errNoTopic
	}
	e.Topic = d.strings.get(d.scratch)
	return nil, nil
}

var errNoTopic = errors.New("the topic is empty")

// decodeBody copies payload, key and headers into one buffer.
func (d *Decoder) decodeBody(fields []Field, e *event.Event) (*source, error) {
	payload, err := field(fields, &d.payload)
	if err != nil {
		return &d.payload, err
	}
	key, err := field(fields, &d.key)
	if err != nil {
		return &d.key, err
	}
	heads, err := field(fields, &d.headers)
	if err != nil {
		return &d.headers, err
	}
	text, err := jsonText(heads, d.headers.kind)
	if err != nil && heads.Format != Null {
		return &d.headers, err
	}
	if noHeaders(text) {
		text = nil
	}

	buf := make([]byte, 0, payloadBound(payload, d.payload.kind)+wordBound(key)+len(text))
	if payload.Format != Null {
		if buf, err = appendPayload(buf, payload, d.payload.kind); err != nil {
			return &d.payload, err
		}
		e.Payload = buf[:len(buf):len(buf)]
	}
	if key.Format != Null {
		start := len(buf)
		if buf, err = appendWord(buf, key, d.key.kind); err != nil {
			return &d.key, err
		}
		e.Key, e.HasKey = share(buf[start:]), true
	}
	if len(text) > 0 {
		d.decodeHeaders(e, buf, text)
	}
	return nil, nil
}

// decodeHeaders sets the headers, or Invalid. The slice is gathered in d first, since their number isn't known.
func (d *Decoder) decodeHeaders(e *event.Event, buf, text []byte) {
	var err error
	d.heads, _, err = headers(d.heads[:0], buf, text)
	switch {
	case err != nil:
		e.Invalid = errors.Join(e.Invalid, err)
	case len(d.heads) > 0:
		e.Headers = slices.Clone(d.heads)
	}
	clear(d.heads) // don't keep the buffers of old rows
}

// noHeaders says that headers are none at all: NULL, no text, no member, or JSON's null, which some libraries write for an
// empty map.
func noHeaders(text []byte) bool {
	return len(text) == 0 || string(text) == "{}" || string(text) == "null"
}

// payloadBound is how many bytes a payload has at most.
func payloadBound(f Field, k kind) int {
	if k == kindBytea && f.Format == Text && bytes.HasPrefix(f.Data, []byte(`\x`)) {
		return len(f.Data)/2 - 1
	}
	return len(f.Data)
}

// wordBound is how many bytes a word has at most; a binary uuid or integer grows.
func wordBound(f Field) int { return max(len(f.Data), min(len(f.Data), 1)*36) }

func (d *Decoder) decodeWords(fields []Field, row *Row) (*source, error) {
	f, err := field(fields, &d.typ)
	if err != nil {
		return &d.typ, err
	}
	if f.Format != Null {
		if d.scratch, err = appendWord(d.scratch[:0], f, d.typ.kind); err != nil {
			return &d.typ, err
		}
		row.Event.Type = d.strings.get(d.scratch)
	}
	if f, err = field(fields, &d.status); err != nil {
		return &d.status, err
	}
	word := f.Data
	if d.status.kind == kindChar {
		word = bytes.TrimRight(word, " ")
	}
	row.Pending = f.Format != Null && string(word) == d.table.statuses[0]
	return nil, nil
}

// decodeLife reads what the relay has written into the row before, and its times.
func (d *Decoder) decodeLife(fields []Field, row *Row) (*source, error) {
	e := row.Event
	f, err := field(fields, &d.created)
	if err == nil && f.Format != Null {
		e.CreatedAt, err = instant(f)
	}
	if err != nil {
		return &d.created, err
	}
	if f, err = field(fields, &d.next); err == nil && f.Format != Null {
		row.NextAttemptAt, err = instant(f)
	}
	if err != nil {
		return &d.next, err
	}
	if f, err = field(fields, &d.attempts); err == nil && f.Format != Null {
		e.Attempts, err = count(f, d.attempts.kind)
	}
	if err != nil {
		return &d.attempts, err
	}
	e.Returned = e.Attempts > 0
	for _, src := range [...]*source{&d.lastErr, &d.publ} {
		if f, err = field(fields, src); err != nil {
			return src, err
		}
		e.Returned = e.Returned || f.Format != Null
	}
	return nil, nil
}
