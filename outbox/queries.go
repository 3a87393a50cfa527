package outbox

import "fmt"

// insertSQL takes seven arrays of text, each as the text of an array: that is what all drivers can send, whatever they know
// of the types of parameters, and one statement serves any number of messages. The casts of the values are to the types of the
// columns; from json there is an assignment to jsonb and text as well.
//
// ORDER BY is what makes the ids, which are the order of the poll, follow the order of the messages.
func insertSQL(table, payloadCast string) string {
	return fmt.Sprintf(`INSERT INTO %s (message_id, topic, key, event_type, headers, payload, next_attempt_at)
SELECT m.id::uuid, m.topic, m.key, m.type, m.headers::jsonb, m.payload::%s, coalesce(m.not_before::timestamptz, now())
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
     WITH ORDINALITY AS m (id, topic, key, type, headers, payload, not_before, position)
ORDER BY m.position`, table, payloadCast)
}
