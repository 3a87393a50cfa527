package stdout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// appendLine appends the event's line with its line end.
func appendLine(dst []byte, e *event.Event) []byte {
	dst = append(dst, `{"id":`...)
	if e.ID.UUID {
		dst = appendString(dst, e.ID.String())
	} else {
		dst = strconv.AppendInt(dst, e.ID.Int(), 10)
	}
	dst = append(dst, `,"message_id":"`...)
	dst = append(dst, event.FormatUUID(e.MessageID)...)
	dst = append(dst, `","topic":`...)
	dst = appendString(dst, e.Topic)
	dst = append(dst, `,"key":`...)
	dst = appendStringOrNull(dst, e.Key, e.HasKey)
	dst = append(dst, `,"event_type":`...)
	dst = appendStringOrNull(dst, e.Type, e.Type != "")
	dst = append(dst, `,"payload":`...)
	dst = appendPayload(dst, e.Payload)
	dst = append(dst, `,"headers":{`...)
	for i, h := range e.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, h.Name)
		dst = append(dst, ':')
		dst = appendString(dst, h.Value)
	}
	dst = append(dst, `},"created_at":`...)
	if e.CreatedAt.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '"')
		dst = sink.AppendCreatedAt(dst, e.CreatedAt)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"path":"`...)
	dst = append(dst, e.Path.String()...)
	return append(dst, "\"}\n"...)
}

// appendPayload appends the value of payload, and with it the field payload_base64 where that is needed.
func appendPayload(dst, payload []byte) []byte {
	switch {
	case payload == nil:
		return append(dst, "null"...)
	case !utf8.Valid(payload): // asked first: json.Valid takes broken UTF-8 inside strings
		dst = append(dst, `null,"payload_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, payload)
		return append(dst, '"')
	case !json.Valid(payload):
		return appendString(dst, string(payload))
	case bytes.ContainsAny(payload, "\r\n"): // valid JSON has them only between tokens
		compact := bytes.NewBuffer(dst)
		_ = json.Compact(compact, payload) // fails for invalid JSON only
		return compact.Bytes()
	default:
		return append(dst, payload...)
	}
}

func appendStringOrNull(dst []byte, s string, set bool) []byte {
	if !set {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// appendString appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD; Postgres has none in its texts.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, `\n`...)
			case '\r':
				dst = append(dst, `\r`...)
			case '\t':
				dst = append(dst, `\t`...)
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...)
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
