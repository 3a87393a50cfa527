package event

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// Path is the way on which an event reached the relay.
type Path uint8

const (
	// WAL is the logical replication stream, the fast path.
	WAL Path = iota
	// Poll is the fallback poll, the authority.
	Poll
)

// String is the spelling used in metric labels and on stdout.
func (p Path) String() string {
	if p == Poll {
		return "poll"
	}
	return "wal"
}

// RowID names one row over all outbox tables of a relay. It is comparable, so that it can be a map key.
type RowID struct {
	// Table is the position of the table in the configured list of outboxes.
	Table int32
	// UUID says how Hi and Lo are read: a uuid's 16 bytes, big endian, or (false) an integer in Lo, two's complement.
	UUID   bool
	Hi, Lo uint64
}

// IntID is the RowID of a row whose id is an integer or bigint.
func IntID(table int32, id int64) RowID { return RowID{Table: table, Lo: uint64(id)} }

// UUIDID is the RowID of a row whose id is a uuid.
func UUIDID(table int32, id [16]byte) RowID {
	return RowID{Table: table, UUID: true, Hi: binary.BigEndian.Uint64(id[:8]), Lo: binary.BigEndian.Uint64(id[8:])}
}

// Int is the integer id; it means nothing when UUID is set.
func (r RowID) Int() int64 { return int64(r.Lo) }

// Bytes are the 16 bytes of a uuid id; they mean nothing unless UUID is set.
func (r RowID) Bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], r.Hi)
	binary.BigEndian.PutUint64(b[8:], r.Lo)
	return b
}

// String is the id as Postgres would print it, without the table.
func (r RowID) String() string {
	if r.UUID {
		return FormatUUID(r.Bytes())
	}
	return strconv.FormatInt(r.Int(), 10)
}

// FormatUUID is the canonical, lower-case form of RFC 9562, section 4.
func FormatUUID(u [16]byte) string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
	return string(b[:])
}

// Header is one header of a row, in the order in which jsonb keeps them.
type Header struct{ Name, Value string }

// Event is one committed outbox row on its way to the broker. It is immutable once it was offered to dispatch; its
// byte slices and strings may share one backing array with other events.
type Event struct {
	ID        RowID
	MessageID [16]byte // the consumer's dedup key, stable across redeliveries
	Topic     string   // after the topic template was applied
	Key       string   // meaningless unless HasKey
	HasKey    bool     // false: the key is NULL, the event has no order
	Payload   []byte   // nil: SQL NULL (a Kafka tombstone); empty and not nil: an empty value
	Headers   []Header // nil for '{}'
	Type      string   // event_type; empty when NULL
	CreatedAt time.Time
	Path      Path

	// Attempts is the number of failed attempts written down in the row.
	Attempts int32
	// DueIn is how long, by the database's clock, the row must still wait for next_attempt_at; not positive: it is due.
	DueIn time.Duration
	// Returned is set on polled rows that were tried or published before (attempts, last_error or published_at say so):
	// a retry or a redrive, never something that the stream missed.
	Returned bool

	// Xid is the 32-bit id of the transaction that wrote the row; 0 when it came by the poll.
	Xid uint32
	// Lag is the time from the commit (poll: from created_at) until the server sent the event, by the database's clock.
	Lag time.Duration
	// ReceivedAt is when the relay had the event, by the monotonic clock of the relay.
	ReceivedAt time.Time

	// Invalid says why the row can't become a message (headers that are no JSON object, say); it is then a permanent
	// failure of this row, and the sink never sees it.
	Invalid error
}

// overhead is what an Event costs in memory beside the bytes it points to; an estimate, for the bound in bytes.
const overhead = 320

// Size is the memory that the event accounts for, in bytes.
func (e *Event) Size() int {
	n := overhead + len(e.Key) + len(e.Payload)
	for i := range e.Headers {
		n += 32 + len(e.Headers[i].Name) + len(e.Headers[i].Value)
	}
	return n
}

// Page is one page of PENDING rows in poll order.
type Page struct {
	Events []*Event
	// Last is set when the pass has no further page.
	Last bool
	// Cut is set with Last when the pass ended before it was through: there may be further rows.
	Cut bool
	// WAL is the server's WAL insert position, read after the page's snapshot was taken: every row in Events has a
	// smaller commit position.
	WAL pglogrepl.LSN
}

// State is what became of a row.
type State uint8

const (
	// Published: the row is marked PUBLISHED (or deleted, when nothing is retained).
	Published State = iota
	// Waiting: the failure is written down and the row is PENDING until its next attempt.
	Waiting
	// Dead: the row is marked DEAD.
	Dead
	// Gone: somebody else deleted the row or changed its status while it was in flight; there is nothing left to write.
	Gone
)

// Settled reports that the outcome of one event is committed in the table.
type Settled struct {
	ID    RowID
	State State
	// DueIn is the time until the next attempt of a Waiting row, by the database's clock.
	DueIn time.Duration
}
