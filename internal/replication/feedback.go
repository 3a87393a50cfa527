package replication

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// The pace of standby status messages.
const (
	moveInterval = 500 * time.Millisecond // when the position has moved
	idleInterval = 10 * time.Second       // when nothing has happened
	// replyInterval keeps an answer from provoking the next request at once: at its shutdown the server asks without pause.
	replyInterval = 100 * time.Millisecond
	askInterval   = 10 * time.Millisecond // when the position was requested by the relay
)

// feedback decides when the server is told what, and whether it is alive. It is pure: time comes from the caller.
type feedback struct {
	watchdog time.Duration
	received pglogrepl.LSN // everything before it has been received
	sent     pglogrepl.LSN
	sentAt   time.Time
	heardAt  time.Time // when anything last came
	askedAt  time.Time // when the server was last asked for a sign of life
	replyDue bool      // the server wants an answer
	askDue   bool      // the relay wants to know the server's position
}

// heard notes that the server said something.
func (f *feedback) heard(now time.Time) { f.heardAt = now }

// advance notes that everything before pos has been received. Positions never go back.
func (f *feedback) advance(pos pglogrepl.LSN) { f.received = max(f.received, pos) }

// dead reports that the watchdog has had enough.
func (f *feedback) dead(now time.Time) bool { return now.Sub(f.heardAt) >= f.watchdog }

// due is the status to send now, if any. It is the only place where one is built: write, flush and apply are explicit,
// since pglogrepl would replace a zero, and nothing is said before there is a position.
func (f *feedback) due(now time.Time) (pglogrepl.StandbyStatusUpdate, bool) {
	since := now.Sub(f.sentAt)
	half := f.watchdog / 2
	silent := now.Sub(f.heardAt) >= half && now.Sub(f.askedAt) >= half
	ask := silent || f.askDue && since >= askInterval
	switch {
	case f.received == 0:
		return pglogrepl.StandbyStatusUpdate{}, false
	case ask, f.replyDue && since >= replyInterval, f.received > f.sent && since >= moveInterval, since >= idleInterval:
	default:
		return pglogrepl.StandbyStatusUpdate{}, false
	}
	return pglogrepl.StandbyStatusUpdate{
		WALWritePosition: f.received, WALFlushPosition: f.received, WALApplyPosition: f.received,
		ClientTime: now, ReplyRequested: ask,
	}, true
}

// told notes that the status was sent.
func (f *feedback) told(u pglogrepl.StandbyStatusUpdate, now time.Time) {
	f.sent, f.sentAt, f.replyDue = u.WALFlushPosition, now, false
	if u.ReplyRequested {
		f.askedAt, f.askDue = now, false
	}
}
