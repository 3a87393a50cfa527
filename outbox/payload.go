package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Payload is what an event says. The zero value is no payload at all, which Write refuses.
type Payload struct {
	kind kind
	data string
	err  error // why there is none
}

type kind byte

const (
	kindNone kind = iota
	kindJSON
	kindText
	kindBytes
	kindTombstone
)

// JSON is v as encoding/json writes it, but without the escaping of <, > and &. A json.RawMessage is taken byte for byte.
func JSON(v any) Payload {
	if raw, ok := v.(json.RawMessage); ok {
		return Payload{kind: kindJSON, data: string(raw)}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Failed(fmt.Errorf("the payload can't be written as JSON: %w", err))
	}
	return Payload{kind: kindJSON, data: strings.TrimSuffix(b.String(), "\n")}
}

// Text is s as it is, for a payload column of type text or bytea.
func Text(s string) Payload { return Payload{kind: kindText, data: s} }

// Bytes is b as it is, for a payload column of type bytea. It is copied.
func Bytes(b []byte) Payload { return Payload{kind: kindBytes, data: string(b)} }

// Tombstone is the payload NULL: to Kafka, that the key is no more.
func Tombstone() Payload { return Payload{kind: kindTombstone} }

// Failed is a payload that couldn't be made. Write returns the error, so that who makes payloads need not.
func Failed(err error) Payload {
	if err == nil {
		err = errors.New("the payload can't be made")
	}
	return Payload{err: err}
}

// fits says why the payload can't go into a column of the type.
func (p Payload) fits(column string) error {
	switch {
	case p.err != nil:
		return p.err
	case p.kind == kindNone:
		return errors.New("there is no payload: say outbox.Tombstone() for NULL")
	case p.kind == kindTombstone, column == typeBytea:
		if p.kind == kindJSON {
			return p.valid(column)
		}
		return nil
	case p.kind == kindBytes:
		return fmt.Errorf("bytes don't fit a payload column of type %s: see outbox.PayloadType", column)
	case p.kind == kindText && column != typeText:
		return fmt.Errorf("text doesn't fit a payload column of type %s: use outbox.JSON, or see outbox.PayloadType", column)
	}
	return p.valid(column)
}

// valid looks into a payload that Postgres will look into.
func (p Payload) valid(column string) error {
	switch {
	case column != typeBytea && strings.ContainsRune(p.data, 0):
		return errors.New("the payload has a NUL character, which Postgres can't keep in a text")
	case !utf8.ValidString(p.data):
		return errors.New("the payload is not valid UTF-8")
	case p.kind != kindJSON:
		return nil
	case !json.Valid([]byte(p.data)):
		return errors.New("the payload is not valid JSON")
	case column == typeJSONB && unstorable(p.data):
		return errors.New(`the payload has a \u escape that jsonb can't keep: \u0000, or half of a surrogate pair`)
	}
	return nil
}
