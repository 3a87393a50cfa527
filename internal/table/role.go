package table

// role is what the relay expects of one of its columns.
type role struct {
	column   Column
	required bool
	written  bool // by the relay: no other column may share it
	kinds    []kind
	// add is the column's definition as init makes it; with it ends the ALTER TABLE that Check proposes.
	add string
	// lost says what is missing without it.
	lost string
}

// roles is in the order of the DDL. Topic isn't required here but by the template that names it.
var roles = []role{
	{column: ID, required: true, kinds: idKinds},
	{column: MessageID, kinds: messageIDKinds, add: "uuid NOT NULL DEFAULT gen_random_uuid()",
		lost: "the message id is derived from the row's id (and is the id itself when that is a uuid); for other ids it changes when the table is renamed"},
	{column: Topic, kinds: wordKinds},
	{column: Key, required: true, kinds: wordKinds, add: "text",
		lost: "events have no key, so they have no order and are spread over all partitions"},
	{column: Payload, required: true, kinds: payloadKinds},
	{column: Headers, kinds: headerKinds, add: "jsonb NOT NULL DEFAULT '{}'",
		lost: "messages carry no headers of the application's own"},
	{column: EventType, kinds: wordKinds, add: "text",
		lost: "messages carry no event_type"},
	{column: Status, required: true, written: true, kinds: textKinds},
	{column: Attempts, written: true, kinds: countKinds, add: "integer NOT NULL DEFAULT 0",
		lost: "failed attempts are not written down, so a restart of the relay begins to count anew"},
	{column: NextAttemptAt, written: true, kinds: instantKinds, add: "timestamptz NOT NULL DEFAULT now()",
		lost: "the time of the next attempt is not written down, so a restart of the relay tries again at once, and events can't be scheduled"},
	{column: LastError, written: true, kinds: textKinds, add: "text",
		lost: "why a row failed is told by the log only"},
	{column: CreatedAt, kinds: timeKinds, add: "timestamptz NOT NULL DEFAULT now()",
		lost: "the age of the oldest pending row can't be told, and messages carry no created_at"},
	{column: PublishedAt, written: true, kinds: timeKinds, add: "timestamptz",
		lost: "the time of publishing is not kept, so retention can't be counted from it"},
}

// known says whether c is one of the relay's columns.
func known(c Column) bool {
	for i := range roles {
		if roles[i].column == c {
			return true
		}
	}
	return false
}
