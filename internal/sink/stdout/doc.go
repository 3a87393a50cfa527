// Package stdout is a sink that writes each event as one JSON object on a line of its own, for pipes, for trying things
// out, and for log collectors:
//
//	{"id":7,"message_id":"…","topic":"orders","key":"42","event_type":"OrderPlaced","payload":{"total":12},
//	 "headers":{"traceparent":"…"},"created_at":"2026-11-30T21:11:29.123456Z","path":"wal"}
//
// id is a number, or a string when it is a uuid. key, event_type and created_at are null when the row has none. headers
// are those of the row. The payload is
//
//   - the JSON document itself, byte for byte as it is stored, when it is one. If it spans several lines, the white space
//     between its tokens is left out;
//   - a JSON string when it is any other text in UTF-8, the empty one included;
//   - null when it is NULL, and null beside one more field, payload_base64, when it is not UTF-8.
//
// An event counts as acknowledged when the operating system took its whole line. Invariants: lines are never mixed,
// whoever calls, and a line that could be written only in part is ended before the next; a reader that has gone away is an unavailable sink, not a failure of the events.
//
// Whoever hands in os.Stdout must have SIGPIPE ignored or notified, else the runtime ends the process on a broken pipe.
package stdout
