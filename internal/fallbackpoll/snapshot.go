package fallbackpoll

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// snapshotTime is how long a pass may keep its snapshot, which holds back vacuum for that long. A pass that could not
// have been read in that time gets twice as much the next time, up to longestSnapshot: it would never come to its end.
const (
	snapshotTime    = 2 * time.Second
	longestSnapshot = 10 * time.Minute
)

// snapshot is the one moment that all pages of a pass show. If each page had a snapshot of its own, a transaction that
// becomes visible between two pages, with a row of a key behind the cursor and another one of that key before it, would
// show the later row only; and the bound on the id does not help, since both ids may be below it.
type snapshot struct {
	tx      pgx.Tx // nil: none
	taken   time.Time
	limit   time.Duration
	reading time.Duration // what its queries took
}

// take begins the transaction; its first query takes the snapshot.
func (s *snapshot) take(ctx context.Context, pool *pgxpool.Pool, now time.Time) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	s.tx, s.taken, s.reading = tx, now, 0
	return nil
}

// over tells whether the snapshot is gone or too old to read on.
func (s *snapshot) over(now time.Time) bool {
	if s.tx != nil && now.Sub(s.taken) < s.limit {
		return false
	}
	if s.reading > s.limit/2 {
		s.limit = min(2*s.limit, longestSnapshot)
	}
	s.reading = 0
	return true
}

// drop ends the transaction. It had nothing to commit, so an error means nothing: the pool closes a broken connection.
func (s *snapshot) drop(ctx context.Context) {
	if s.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.tx.Rollback(ctx)
	s.tx = nil
}
