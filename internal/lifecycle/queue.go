package lifecycle

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// early is after which pauses an outcome is tried again that found no row; the last repeats.
var early = [...]time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

// askAfter is how long a row must have been missed before the database is asked what became of it.
const askAfter = 2 * time.Second

// trouble is how a queue waits after a statement that failed.
var trouble = Retry{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.2}

// queue holds what has to be written into one table. It is owned by the writer.
type queue struct {
	*table.Outbox
	interval time.Duration
	most     int // rows in a statement

	fresh []outcome
	late  []outcome // each waits for its time
	batch int       // most, or less after a statement that failed because of a row
	last  time.Time // when fresh outcomes were written last

	failures int       // of statements, one after the other
	paused   time.Time // nothing is written before
	logged   time.Time
}

func newQueue(o *table.Outbox, cfg Config) *queue {
	return &queue{Outbox: o, interval: cfg.MarkInterval, most: cfg.MarkBatch, batch: cfg.MarkBatch}
}

func (q *queue) empty() bool { return len(q.fresh)+len(q.late) == 0 }

// next is when the queue has something to write; far off when it is empty.
func (q *queue) next() time.Time {
	at := time.Now().Add(time.Hour)
	if len(q.fresh) > 0 {
		at = q.last.Add(q.interval)
		if len(q.fresh) >= q.batch {
			at = time.Time{}
		}
	}
	for i := range q.late {
		if q.late[i].at.Before(at) {
			at = q.late[i].at
		}
	}
	if at.Before(q.paused) {
		return q.paused
	}
	return at
}

// take takes out what is to be written now. With hurry that is everything which doesn't wait for a time of its own.
func (q *queue) take(now time.Time, hurry bool) []outcome {
	if now.Before(q.paused) {
		return nil
	}
	var due []outcome
	waiting := q.late[:0]
	for _, o := range q.late {
		if o.at.After(now) {
			waiting = append(waiting, o)
		} else {
			due = append(due, o)
		}
	}
	clear(q.late[len(waiting):])
	q.late = waiting
	if len(q.fresh) > 0 && (len(q.fresh) >= q.batch || hurry || !now.Before(q.last.Add(q.interval))) {
		if due == nil {
			due = q.fresh
		} else {
			due = append(due, q.fresh...)
		}
		q.fresh, q.last = nil, now
	}
	return due
}

// wait puts an outcome back that found no row.
func (q *queue) wait(o outcome, now time.Time) {
	if o.tries == 0 {
		o.missed = now
	}
	o.at = now.Add(early[min(o.tries, len(early)-1)])
	o.tries++
	q.late = append(q.late, o)
}

// putBack takes back what a failed statement was to write, and decides how it goes on: after trouble with one of the rows
// (a trigger, a constraint) with smaller statements, until the one row is alone and waits by itself; after any other with
// a pause for the table.
func (q *queue) putBack(outcomes []outcome, err error, now time.Time) {
	for i := range outcomes {
		outcomes[i].unclear = true
	}
	q.failures++
	switch {
	case !ofRow(err):
		q.paused = now.Add(trouble.delay(q.failures))
	case len(outcomes) == 1:
		o := outcomes[0]
		o.at = now.Add(early[len(early)-1])
		q.late = append(q.late, o)
		return
	default:
		q.batch = max(1, len(outcomes)/2)
	}
	q.fresh = append(outcomes, q.fresh...)
	q.last = time.Time{} // nothing was written
}

// worked notes that a statement succeeded.
func (q *queue) worked() {
	q.failures = 0
	q.batch = min(2*q.batch, q.most)
}

// ofRow tells whether a statement failed because of what is in a row: data exceptions (class 22), constraints (23), errors
// raised by functions (P0).
func ofRow(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) || len(e.Code) < 2 {
		return false
	}
	class := e.Code[:2]
	return class == "22" || class == "23" || class == "P0"
}
