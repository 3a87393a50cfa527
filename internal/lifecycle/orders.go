package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Order is how an action is carried out, and for whom.
type Order struct {
	// DryRun counts the rows and changes nothing.
	DryRun bool
	// Actor is who asks for it, and Reason why, for the audit trail.
	Actor, Reason string
	// Rate is the most rows that are changed in a second; 0: as fast as it goes.
	Rate int
	// Progress is told how many rows were changed so far; may be nil.
	Progress func(rows int64)
}

// action is one thing that is done to rows.
type action struct {
	name   string // as the audit trail calls it
	status string // of the rows that it is for
	sql    func(*table.Outbox) string
	needs  table.Column // a column that the table must have; "": none
}

var (
	retry   = action{name: "dead retry", status: table.Dead, sql: func(o *table.Outbox) string { return requeueSQL(o, table.Dead) }}
	discard = action{name: "dead discard", status: table.Dead, sql: discardSQL}
	free    = action{name: "dead free", status: table.Dead, sql: freeSQL, needs: table.NextAttemptAt}
	redrive = action{name: "redrive", status: table.Published, sql: func(o *table.Outbox) string { return requeueSQL(o, table.Published) }}
)

// Retry makes the chosen DEAD rows PENDING, with all attempts before them; last_error stays. It returns how many it
// changed (of a dry run: would change), as the other actions do.
func (d *Dead) Retry(ctx context.Context, f Filter, by Order) (int64, error) {
	return d.act(ctx, f, by, retry)
}

// Discard deletes the chosen DEAD rows.
func (d *Dead) Discard(ctx context.Context, f Filter, by Order) (int64, error) {
	return d.act(ctx, f, by, discard)
}

// Free lets the keys of the chosen DEAD rows go on where ordering.on_dead blocks them. The rows stay DEAD.
func (d *Dead) Free(ctx context.Context, f Filter, by Order) (int64, error) {
	return d.act(ctx, f, by, free)
}

// Redrive makes the chosen PUBLISHED rows PENDING, so that they are published again, with the same message id. It reads
// the whole table, in small steps.
func (d *Dead) Redrive(ctx context.Context, f Filter, by Order) (int64, error) {
	return d.act(ctx, f, by, redrive)
}

// act does something with the chosen rows, batch by batch, each in a transaction of its own together with its entry in the
// audit trail. What was done before an error stays done.
func (d *Dead) act(ctx context.Context, f Filter, by Order, a action) (int64, error) {
	var total int64
	var trail Trail
	var err error
	if !by.DryRun {
		trail, err = d.trail(ctx)
	}
	size := batch
	if by.Rate > 0 {
		size = min(size, by.Rate)
	}
	var rest time.Duration // of the pause that the rows so far are worth
	if err == nil {
		err = d.each(ctx, f, a.status, false, size, func(o *table.Outbox, rows []DeadRow) (bool, error) {
			rows = a.left(rows)
			if a.needs != "" && !o.Has(a.needs) {
				return false, fmt.Errorf("table %s has no column %s, where that would be written down", o, a.needs)
			}
			if by.DryRun || len(rows) == 0 {
				total += int64(len(rows))
				return true, nil
			}
			if err := d.pause(ctx, rest); err != nil {
				return false, err
			}
			n, err := d.change(ctx, f, by, a, trail, o, rows)
			total += n
			if by.Rate > 0 {
				rest = time.Duration(n) * time.Second / time.Duration(by.Rate)
			}
			if by.Progress != nil {
				by.Progress(total)
			}
			return true, err
		})
	}
	if err != nil {
		return total, fmt.Errorf("%s: %w", a.name, err)
	}
	return total, nil
}

// left leaves out the rows with which nothing is left to do.
func (a action) left(rows []DeadRow) []DeadRow {
	if a.name != free.name {
		return rows
	}
	var left []DeadRow
	for _, r := range rows {
		if !r.Freed {
			left = append(left, r)
		}
	}
	return left
}

// change carries one batch out. It returns how many of the rows it still found in the state, which is committed.
func (d *Dead) change(ctx context.Context, f Filter, by Order, a action, trail Trail, o *table.Outbox, rows []DeadRow) (n int64, err error) {
	ids := make([]event.RowID, len(rows))
	for i, row := range rows {
		ids[i] = row.Row
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, a.sql(o), o.IDArray(ids))
		if err != nil {
			return err
		}
		changed, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil || len(changed) == 0 {
			return err
		}
		n = int64(len(changed))
		return trail.write(ctx, tx, a.name, o, f, by, changed)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
