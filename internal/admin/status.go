package admin

import (
	"context"
	"encoding/json"
	"time"
)

// Source tells the state of the relay.
type Source interface {
	// Status is called by probes, by the page and by the sampler, from any goroutine. It should answer from what is known
	// already: a probe that has to wait for the database tells about the database, not about the relay. It must return
	// soon after ctx ends; a stop waits for it.
	Status(ctx context.Context) Status
}

// Status is what the relay tells of itself. Its JSON is a contract: keys are added, never renamed or removed; lists are
// never null; a time that isn't known is left out; ages are in seconds.
type Status struct {
	// Version is the relay's version, Instance the name by which this process can be told from its siblings.
	Version  string `json:"version"`
	Instance string `json:"instance"`
	// Now is when this was put together, by the clock of the relay's machine.
	Now time.Time `json:"now"`
	// Leader says whether this instance is the active one, LeaderSince since when.
	Leader      bool      `json:"leader"`
	LeaderSince time.Time `json:"leader_since,omitzero"`
	// Mode is STANDBY, CATCHUP, LIVE or POLLING; ModeReason is why, ModeSince since when.
	Mode       string    `json:"mode"`
	ModeReason string    `json:"mode_reason"`
	ModeSince  time.Time `json:"mode_since,omitzero"`

	Stream   Stream   `json:"stream"`
	Slot     Slot     `json:"slot"`
	Sink     Sink     `json:"sink"`
	InFlight InFlight `json:"in_flight"`
	// BlockedKeys is the number of keys that wait for a retry or for a decision about a DEAD row.
	BlockedKeys int     `json:"blocked_keys"`
	Tables      []Table `json:"tables"`
	// Transitions are the last changes of mode, oldest first.
	Transitions []Transition `json:"transitions"`
	Throughput  Throughput   `json:"throughput"`

	// Ready says whether the relay does its work, or stands by in good order. Reasons are why it isn't ready.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Degraded lists what makes the relay slower or less safe than it could be, while it is ready.
	Degraded []string `json:"degraded"`
	// Stuck is why only a restart helps. Empty: nothing of the kind. It fails /livez, so it must never tell of a fault
	// outside of this process.
	Stuck string `json:"stuck"`
}

// Stream is the replication stream, the fast path.
type Stream struct {
	// Enabled is replication.enabled. Up says whether the stream brings rows now, Reason why it doesn't.
	Enabled bool   `json:"enabled"`
	Up      bool   `json:"up"`
	Reason  string `json:"reason"`
	// ConfirmedLSN is the position confirmed to the server, spelled as Postgres does. Empty: none yet.
	ConfirmedLSN string `json:"confirmed_lsn"`
	// LastMessageAgeSeconds is the time since the last byte from the server; it means nothing while the stream is down.
	LastMessageAgeSeconds float64 `json:"last_message_age_seconds"`
	// Reconnects counts the connections after the first one since the process began.
	Reconnects int64 `json:"reconnects"`
}

// Slot is the replication slot as the server describes it.
type Slot struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	// WALStatus is the server's word (reserved, extended, unreserved, lost). Empty: there is no slot, or it isn't known.
	WALStatus string `json:"wal_status"`
	// LagBytes is current WAL position - confirmed_flush_lsn, RetainedWALBytes current WAL position - restart_lsn.
	LagBytes         int64 `json:"lag_bytes"`
	RetainedWALBytes int64 `json:"retained_wal_bytes"`
}

// Sink is where events go to.
type Sink struct {
	// Kind is sink.kind. Up is false during an outage, and Reason then says what the sink answered.
	Kind   string `json:"kind"`
	Up     bool   `json:"up"`
	Reason string `json:"reason"`
}

// InFlight is what dispatch holds.
type InFlight struct {
	Events int   `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// Table is one outbox table.
type Table struct {
	// Name is the table's name with its schema.
	Name string `json:"name"`
	// Pending and Dead are numbers of rows; when the flag beside it is true it is the bound at which counting stopped.
	Pending       int64 `json:"pending"`
	PendingCapped bool  `json:"pending_capped"`
	// OldestPendingAgeSeconds is by the database's clock; 0 when nothing is PENDING.
	OldestPendingAgeSeconds float64 `json:"oldest_pending_age_seconds"`
	// PublishedEstimate is about how many PUBLISHED rows are retained, from the planner's statistics.
	PublishedEstimate int64 `json:"published_estimate"`
	Dead              int64 `json:"dead"`
	DeadCapped        bool  `json:"dead_capped"`
}

// Transition is one change of mode.
type Transition struct {
	At     time.Time `json:"at"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Reason string    `json:"reason"`
}

// Throughput is what the broker has acknowledged.
type Throughput struct {
	// PublishedTotal counts events since the process began.
	PublishedTotal int64 `json:"published_total"`
	// RatePerSecond is the mean of the last minute. A Source may leave it 0: the Server then fills it in from its samples.
	RatePerSecond float64 `json:"rate_per_second"`
}

// MarshalJSON implements json.Marshaler, so that the endpoint and the command print the same lists.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	s.Tables, s.Transitions = list(s.Tables), list(s.Transitions)
	s.Reasons, s.Degraded = list(s.Reasons), list(s.Degraded)
	return json.Marshal(plain(s))
}

// list makes an empty list of none: [] in JSON, not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
