package replication

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// State is a snapshot of the stream, for status and readiness.
type State struct {
	// Up says that the stream is on.
	Up bool `json:"up"`
	// Reason is why the stream isn't up, with what to do about it. Empty when it is.
	Reason string `json:"reason,omitempty"`
	// SQLState is the server's error code behind Reason, if there was one.
	SQLState string `json:"sqlstate,omitempty"`
	// Since is when Up last changed.
	Since time.Time `json:"since"`
	// StartLSN is where the current or the last stream began.
	StartLSN pglogrepl.LSN `json:"-"`
	// ConfirmedLSN is the position that the server was last told.
	ConfirmedLSN pglogrepl.LSN `json:"-"`
	// LastMessageAge is the time since the last message of the server; zero when there never was one.
	LastMessageAge time.Duration `json:"-"`
	// Reconnects counts the streams after the first.
	Reconnects int `json:"reconnects"`
	// SlotRecreated counts how often a slot that had been there was replaced.
	SlotRecreated int `json:"slot_recreated"`
}

// progress is what the session writes for each message, without a lock.
type progress struct {
	heard     atomic.Int64 // Unix nanoseconds; 0: never
	confirmed atomic.Uint64
}

func (p *progress) age(now time.Time) time.Duration {
	at := p.heard.Load()
	if at == 0 {
		return 0
	}
	return max(now.Sub(time.Unix(0, at)), 0)
}
