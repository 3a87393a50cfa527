package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// inquire asks the database what became of rows that were missed for long (or that a statement with an unclear end may
// have changed), and reports those that are gone: with another status, or not there although nobody can still commit
// them. The others wait.
func (l *Lifecycle) inquire(ctx context.Context, q *queue, ask []outcome) (gone []event.Settled) {
	if len(ask) == 0 {
		return nil
	}
	fates, err := l.fates(ctx, q, ask)
	now := time.Now()
	if err != nil {
		l.log.Debug("asking what became of rows failed", "table", q.String(), "error", err)
	}
	var dead []outcome
	for i, o := range ask {
		if err != nil || !fates[i].gone() {
			l.metrics.markRetries.Inc()
			q.wait(o, now)
			continue
		}
		state := event.Gone
		switch {
		case o.unclear && o.err == nil: // it was most likely ourselves, and then the answer was lost
			state = event.Published
			l.metrics.marked.Inc()
		case o.unclear && fates[i].dead:
			state = event.Dead
			dead = append(dead, o)
		default:
			l.metrics.gone.Inc()
			l.burst.add(q, o.event.ID)
		}
		gone = append(gone, event.Settled{ID: o.event.ID, State: state})
	}
	l.buried(q, dead)
	return gone
}

// fate is what the database says of a row. A visible row is the row itself, not another that has its id now.
type fate struct{ visible, pending, dead, over bool }

func (f fate) gone() bool {
	if f.visible {
		return !f.pending
	}
	return f.over
}

func (l *Lifecycle) fates(ctx context.Context, q *queue, ask []outcome) ([]fate, error) {
	xids := make([]int64, len(ask))
	for i, o := range ask {
		if o.event.Path == event.WAL {
			xids[i] = int64(o.event.Xid)
		}
	}
	fates := make([]fate, len(ask))
	rows, err := l.pool.Query(ctx, fateSQL(q.Outbox), q.IDArray(rowIDs(ask)), messageIDs(ask), xids)
	if err != nil {
		return nil, err
	}
	var n int
	var f fate
	_, err = pgx.ForEachRow(rows, []any{&n, &f.visible, &f.pending, &f.dead, &f.over}, func() error {
		fates[n-1] = f
		return nil
	})
	return fates, err
}

// burst gathers gone rows for one log line a minute.
type burst struct {
	rows   int
	table  string
	sample []string
	logged time.Time
}

func (b *burst) add(q *queue, id event.RowID) {
	b.rows++
	if len(b.sample) < 10 {
		b.table = q.String()
		b.sample = append(b.sample, id.String())
	}
}

func (b *burst) log(log *slog.Logger) {
	if b.rows == 0 || time.Since(b.logged) < time.Minute {
		return
	}
	log.Warn("rows in flight were deleted or given another status by somebody else, nothing is left to do for them",
		"rows", b.rows, "table", b.table, "ids", b.sample)
	*b = burst{logged: time.Now()}
}
