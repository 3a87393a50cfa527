package history

import "time"

// History is what the witnesses say.
type History struct {
	Events  []Event  // of the writers
	Records []Record // of the topics
	Changes []Change // of the table's diary, in its order
	Rows    []Row    // of the table in the end
	Windows []Window // in order; each begins where the one before ends
	Rules   Rules
}

// Event is a row that a writer inserted.
type Event struct {
	UID   int64 // in the payload; no two events share one
	Table string
	Topic string
	Key   string // empty: none
	// Seq counts the events of a table's key in the order of their commits: writers serialise the transactions of a key, so
	// that this is the order of ids too.
	Seq       int64
	Sum       uint32 // of the payload
	Poison    bool   // the broker never takes it
	Committed bool
	At        time.Time // before the commit was asked for
}

// Record is what a topic has of an event.
type Record struct {
	UID       int64
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time // when the broker appended it, in whole milliseconds
	Key       string
	MessageID string
	Sum       uint32
}

// Change is an entry of the table's diary. At and PublishedAt are by the server's clock, which is the broker's too.
type Change struct {
	UID       int64
	From, To  string // states; To is Gone when the row was deleted
	Attempts  int    // after the change
	Attempted bool   // the number of attempts has grown
	Error     string
	At        time.Time
	// PublishedAt is the row's published_at after the change, from which its retention counts. It is earlier than At when
	// the UPDATE had to wait for a lock. Zero: none.
	PublishedAt time.Time
}

// Row is a row of the final table.
type Row struct {
	UID       int64
	ID        int64
	MessageID string
	Status    string
}

// The states of a row.
const (
	Pending   = "PENDING"
	Published = "PUBLISHED"
	Dead      = "DEAD"
	Gone      = "GONE" // deleted
)

// Window is the time from one fault to the next.
type Window struct {
	Kind    string
	Began   time.Time
	Healed  time.Time // when the fault was over
	Back    time.Time // when the relay delivered as before; zero: not before the next fault
	Repeats int       // how often what was in flight may have been sent again: see Rules.InFlight
	Why     []string  // for each repeat
}

// Rules are what a judge must know of the run.
type Rules struct {
	Retention time.Duration
	// InFlight is what one crash of the relay, one lost lease or one renewal of its producer may repeat: what was in flight,
	// and one batch of marks.
	InFlight int
	// Recreated are topics that were deleted and made again, and when that was last done: what was published before is
	// gone.
	Recreated map[string]time.Time
	// Refusing are topics that were missing for a while: an event for one of them may have failed, and may be DEAD.
	Refusing map[string]bool
}
