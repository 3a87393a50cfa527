package table

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Column is one of the relay's own names for the columns of an outbox table.
type Column string

// The columns that the relay knows. ID, Payload and Status must exist, and so must Key unless it is mapped to "", and
// the columns that the topic template names (Topic, by default). Without one of the others the relay works, with less:
// Missing says what is lost.
const (
	ID            Column = "id"
	MessageID     Column = "message_id"
	Topic         Column = "topic"
	Key           Column = "key"
	Payload       Column = "payload"
	Headers       Column = "headers"
	EventType     Column = "event_type"
	Status        Column = "status"
	Attempts      Column = "attempts"
	NextAttemptAt Column = "next_attempt_at"
	LastError     Column = "last_error"
	CreatedAt     Column = "created_at"
	PublishedAt   Column = "published_at"
)

// Querier is what Resolve needs of a pool or a connection.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Spec is one configured outbox table.
type Spec struct {
	// Table is the name as configured: table or schema.table, each part optionally in double quotes.
	Table string
	// Columns maps the relay's names to the table's where they differ, as they are: neither folded nor quoted. An empty
	// name says that the table has no such column (though it may have one of that name that means something else).
	Columns map[Column]string
	// Topic is a template over columns, "{{topic}}" when empty. A name in it is one of the relay's or one of the table's.
	Topic string
	// Statuses maps the relay's words for a state (Pending, Published, Dead) to the table's where they differ.
	Statuses map[string]string
}

// The relay's own words for the state of a row.
const (
	Pending   = "PENDING"
	Published = "PUBLISHED"
	Dead      = "DEAD"
)

// FieldFormat is the form of a value on the wire, in pgoutput's own letters.
type FieldFormat byte

// The formats of a field: protocol documentation, "TupleData".
const (
	Null   FieldFormat = 'n'
	Text   FieldFormat = 't'
	Binary FieldFormat = 'b'
)

// Field is one column value of a tuple or of a polled row. Data is only borrowed.
type Field struct {
	Format FieldFormat
	Data   []byte
}

// WireColumn describes a column of a Relation message or of a query's row description.
type WireColumn struct {
	Name string
	OID  uint32 // of the type
}

// Row is what a Decoder makes of a row: the event and whether the row was PENDING.
type Row struct {
	Event   *event.Event
	Pending bool
	// NextAttemptAt is the zero time when the table has no such column or the value is NULL. An infinite timestamp is
	// the latest (or the earliest) that Postgres can store.
	NextAttemptAt time.Time
}
