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
		dst = sink.AppendJSONString(dst, e.ID.String())
	} else {
		dst = strconv.AppendInt(dst, e.ID.Int(), 10)
	}
	dst = append(dst, `,"message_id":"`...)
	dst = append(dst, event.FormatUUID(e.MessageID)...)
	dst = append(dst, `","topic":`...)
	dst = sink.AppendJSONString(dst, e.Topic)
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
		dst = sink.AppendJSONString(dst, h.Name)
		dst = append(dst, ':')
		dst = sink.AppendJSONString(dst, h.Value)
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
		return sink.AppendJSONString(dst, string(payload))
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
	return sink.AppendJSONString(dst, s)
}
