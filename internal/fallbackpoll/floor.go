package fallbackpoll

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The floor. While a long transaction elsewhere holds back the horizon of vacuum, the entries of published rows stay in
// the pending rows' index, and each pass from the beginning reads all of them to find ten rows. A floor on the id spares
// that. It can lose nothing, for it is never trusted:
//
//   - It is used only while whole passes are slow although they bring little; in a healthy database every pass is whole.
//   - At least each WholeEvery a pass is whole. What became PENDING below the floor meanwhile (an id that was drawn long
//     before its commit, a DEAD row retried by command) is found then; only later.
//   - It is a margin below the lowest row that was PENDING in the last whole pass, or where there was none below the
//     highest row of the table, so that ids which commit somewhat out of order lie above it.
//   - What an order depends on asks for a whole pass.
//
// Tables in the order of created_at have none.
type floor struct {
	known bool
	id    int64 // rows above it are read

	// Of the whole pass under way.
	lowest *int64 // the first PENDING row
	slow   bool
}

// begin starts over with a pass; slow: it took long to see that no row is PENDING.
func (f *floor) begin(slow bool) { f.lowest, f.slow = nil, slow }

// note takes what a page of the pass brought.
func (f *floor) note(events []*event.Event, slow bool) {
	f.slow = f.slow || slow
	if f.lowest == nil && len(events) > 0 {
		id := events[0].ID.Int()
		f.lowest = &id
	}
}

// floorServes tells whether the coming pass may have a floor.
func (p *Poller) floorServes() bool {
	if p.now().Sub(p.began) >= p.cfg.WholeEvery {
		return false
	}
	for _, t := range p.tables {
		if t.floor.known {
			return true
		}
	}
	return false
}

// endTable learns the floor for the passes to come when a whole pass is through with a table.
func (p *Poller) endTable(ctx context.Context, t *polled) error {
	if !p.whole || t.OrderByCreatedAt() {
		return nil
	}
	f := &t.floor
	if !f.slow {
		f.known = false
		return nil
	}
	low := f.lowest
	if low == nil {
		var highest int64
		err := p.moment.tx.QueryRow(ctx, highestSQL(t.Outbox), f.id).Scan(&highest)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the highest id of %s: %w", t, err)
		}
		low = &highest
	}
	if !f.known {
		p.log.Warn("reading the pending rows is slow, is a long transaction holding back vacuum?", "table", t.String())
	}
	f.known, f.id = true, *low-1-p.cfg.FloorMargin
	return nil
}
