package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// statementTimeout bounds one statement of the writer. A row or a table that somebody keeps locked holds up the outcomes
// of others no longer than that.
const statementTimeout = 30 * time.Second

// write is the one writer of outcomes. When ctx has ended it returns once everything is written or work has ended.
func (l *Lifecycle) write(ctx, work context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for {
		l.sort()
		left := false
		next := time.Now().Add(time.Hour)
		for _, q := range l.queues {
			l.flush(work, q, ctx.Err() != nil)
			left = left || !q.empty()
			if at := q.next(); at.Before(next) {
				next = at
			}
		}
		l.burst.log(l.log)
		if work.Err() != nil || ctx.Err() != nil && !left && !l.handed() {
			return
		}
		timer.Reset(max(time.Until(next), 0))
		select {
		case <-l.wake:
		case <-timer.C:
		case <-done:
			done = nil // from now on in a hurry, but not in a circle
		case <-work.Done():
		}
	}
}

// sort takes what was handed in into the tables' queues.
func (l *Lifecycle) sort() {
	l.mu.Lock()
	inbox := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, o := range inbox {
		q := l.queues[o.event.ID.Table]
		q.fresh = append(q.fresh, o)
	}
}

func (l *Lifecycle) handed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inbox) > 0
}

// flush writes what is to be written now, statement by statement; the outcomes of a statement that fails, and of those
// that would have followed, go back.
func (l *Lifecycle) flush(ctx context.Context, q *queue, hurry bool) {
	due := q.take(time.Now(), hurry)
	slices.SortStableFunc(due, func(a, b outcome) int { return compareIDs(a.event.ID, b.event.ID) })
	var marks, failures []outcome
	for _, o := range due {
		if o.err == nil {
			marks = append(marks, o)
		} else {
			failures = append(failures, o)
		}
	}
	for _, kind := range []struct {
		outcomes []outcome
		once     func(context.Context, *queue, []outcome) error
	}{{marks, l.markOnce}, {failures, l.failOnce}} {
		for rest := kind.outcomes; len(rest) > 0; {
			if time.Now().Before(q.paused) {
				q.fresh = append(q.fresh, rest...)
				break
			}
			n := min(len(rest), q.batch)
			l.writeOnce(ctx, q, rest[:n:n], kind.once)
			rest = rest[n:]
		}
	}
}

// compareIDs orders rows as the database does, for the order of locks.
func compareIDs(a, b event.RowID) int {
	switch {
	case a == b:
		return 0
	case a.UUID && (a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo), !a.UUID && a.Int() < b.Int():
		return -1
	default:
		return 1
	}
}

func (l *Lifecycle) writeOnce(ctx context.Context, q *queue, outcomes []outcome, once func(context.Context, *queue, []outcome) error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err := once(ctx, q, outcomes)
	now := time.Now()
	if err != nil {
		q.putBack(outcomes, err, now)
		if now.Sub(q.logged) > time.Minute {
			q.logged = now
			l.log.Error("writing outcomes failed, they are kept and tried again", "table", q.String(), "rows", len(outcomes), "error", err)
		}
		return
	}
	if q.failures > 0 && !q.logged.IsZero() {
		q.logged = time.Time{}
		l.log.Info("outcomes are written again", "table", q.String())
	}
	q.worked()
}

// markOnce marks rows. What the statement doesn't name waits.
func (l *Lifecycle) markOnce(ctx context.Context, q *queue, outcomes []outcome) error {
	sql := markSQL(q.Outbox)
	if l.cfg.Retention <= 0 {
		sql = deleteMarkedSQL(q.Outbox)
	}
	began := time.Now()
	found := make(map[event.RowID]event.State, len(outcomes))
	var id event.RowID
	rows, err := l.pool.Query(ctx, sql, markArgs(q.Outbox, outcomes)...)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{q.ScanID(&id)}, func() error {
		found[id] = event.Published
		return nil
	}); err != nil {
		return err
	}
	l.metrics.markSeconds.Observe(time.Since(began).Seconds())
	l.metrics.marked.Add(float64(len(found)))
	l.conclude(ctx, q, outcomes, found)
	return nil
}

// failOnce writes failures down. What the statement doesn't name waits.
func (l *Lifecycle) failOnce(ctx context.Context, q *queue, outcomes []outcome) error {
	texts, dies, pauses := make([]string, len(outcomes)), make([]bool, len(outcomes)), make([]int64, len(outcomes))
	for i, o := range outcomes {
		texts[i], dies[i], pauses[i] = o.text, o.dies, o.pause.Microseconds()
	}
	args := []any{q.IDArray(rowIDs(outcomes)), messageIDs(outcomes), texts, dies, pauses}
	if q.Has(table.Attempts) {
		args = append(args, l.cfg.Retry.MaxAttempts)
	}
	found := make(map[event.RowID]event.State, len(outcomes))
	var id event.RowID
	var dead bool
	rows, err := l.pool.Query(ctx, failSQL(q.Outbox), args...)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{q.ScanID(&id), &dead}, func() error {
		found[id] = event.Waiting
		if dead {
			found[id] = event.Dead
		}
		return nil
	}); err != nil {
		return err
	}
	for _, o := range outcomes {
		if found[o.event.ID] == event.Waiting && !(q.Has(table.Attempts) && q.Has(table.NextAttemptAt)) {
			l.memory.put(o.event.ID, o.attempts, o.pause)
		}
	}
	l.conclude(ctx, q, outcomes, found)
	return nil
}

// conclude reports the rows that a committed statement named, and lets the others wait.
func (l *Lifecycle) conclude(ctx context.Context, q *queue, outcomes []outcome, found map[event.RowID]event.State) {
	settled := make([]event.Settled, 0, len(outcomes))
	var dead, ask []outcome
	now := time.Now()
	for _, o := range outcomes {
		state, ok := found[o.event.ID]
		switch {
		case ok && state == event.Waiting:
			settled = append(settled, event.Settled{ID: o.event.ID, State: state, DueIn: o.pause})
		case ok:
			settled = append(settled, event.Settled{ID: o.event.ID, State: state})
			if state == event.Dead {
				dead = append(dead, o)
			}
		case o.unclear || o.tries > 0 && now.Sub(o.missed) > askAfter:
			ask = append(ask, o)
		default:
			l.metrics.markRetries.Inc()
			q.wait(o, now)
		}
	}
	l.buried(q, dead)
	l.settle(append(settled, l.inquire(ctx, q, ask)...))
}

func rowIDs(outcomes []outcome) []event.RowID {
	ids := make([]event.RowID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.event.ID
	}
	return ids
}

func messageIDs(outcomes []outcome) [][16]byte {
	ids := make([][16]byte, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.event.MessageID
	}
	return ids
}
