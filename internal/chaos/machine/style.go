package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// style fills a transaction that has begun.
type style func(context.Context, *writer) error

// small: a few rows.
func small(ctx context.Context, wr *writer) error { return wr.insert(ctx, 1+wr.rng.IntN(5)) }

// bulk: thousands of rows.
func bulk(ctx context.Context, wr *writer) error { return wr.insert(ctx, 500+wr.rng.IntN(1500)) }

// slow: rows at the begin and at the end of up to two seconds, with ids between which others commit.
func slow(ctx context.Context, wr *writer) error {
	if err := wr.insert(ctx, 1+wr.rng.IntN(20)); err != nil {
		return err
	}
	pause(ctx, time.Duration(wr.rng.Int64N(int64(2*time.Second))))
	return wr.insert(ctx, 1+wr.rng.IntN(20))
}

// prepared: the first phase; commitPrepared has the second.
func prepared(ctx context.Context, wr *writer) error { return wr.insert(ctx, 1+wr.rng.IntN(20)) }

// large: more rows than the relay may have in flight.
func large(ctx context.Context, wr *writer) error { return wr.insert(ctx, 2*maxInFlight) }

// canary: one row, by which the schedule sees whether the relay delivers.
func canary(ctx context.Context, wr *writer) error { return wr.insert(ctx, 1) }

// copied: rows by COPY.
func copied(ctx context.Context, wr *writer) error {
	by := wr.drafts(50 + wr.rng.IntN(150))
	for _, table := range slices.Sorted(maps.Keys(by)) {
		r := by[table]
		_, err := wr.conn.CopyFrom(ctx, pgx.Identifier{table}, []string{"topic", "key", "payload"}, pgx.CopyFromSlice(len(r.topics), func(i int) ([]any, error) {
			return []any{r.topics[i], r.keys[i], []byte(r.payloads[i])}, nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// savepoints: nested ones, some rolled back.
func savepoints(ctx context.Context, wr *writer) error {
	for range 1 + wr.rng.IntN(4) {
		if err := wr.nested(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

func (wr *writer) nested(ctx context.Context, depth int) error {
	name := fmt.Sprintf("s%d", depth)
	if err := wr.exec(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	from := len(wr.txn)
	if err := wr.insert(ctx, 1+wr.rng.IntN(4)); err != nil {
		return err
	}
	if depth < 3 && wr.rng.IntN(2) == 0 {
		if err := wr.nested(ctx, depth+1); err != nil {
			return err
		}
	}
	if wr.rng.Float64() > 0.4 {
		return wr.exec(ctx, "RELEASE SAVEPOINT "+name)
	}
	for _, e := range wr.txn[from:] {
		wr.undone[e.UID] = true
	}
	return wr.exec(ctx, "ROLLBACK TO SAVEPOINT "+name)
}

// insert adds n rows to the transaction, one statement for each table.
func (wr *writer) insert(ctx context.Context, n int) error {
	by := wr.drafts(n)
	for _, table := range slices.Sorted(maps.Keys(by)) {
		r := by[table]
		if err := wr.exec(ctx, insertRows(table), r.topics, r.keys, r.payloads); err != nil {
			return err
		}
	}
	return nil
}

// commitPrepared prepares the transaction, waits a moment, and commits it or rolls it back. Whatever is not answered is
// asked for.
func (wr *writer) commitPrepared(ctx, tctx context.Context, xid string) (bool, error) {
	gid := fmt.Sprintf("%s_%d_%s", wr.world.database, wr.n, xid)
	commit := wr.rng.IntN(5) > 0
	hold := time.Duration(wr.rng.Int64N(int64(2500 * time.Millisecond)))
	if err := wr.exec(tctx, "PREPARE TRANSACTION '"+gid+"'"); err != nil {
		if there, err := wr.isPrepared(ctx, gid, xid); err != nil || !there {
			return false, err
		}
	}
	pause(ctx, hold)
	now := time.Now()
	for i := range wr.txn {
		wr.txn[i].At = now
	}
	second := "ROLLBACK PREPARED '" + gid + "'"
	if commit {
		second = "COMMIT PREPARED '" + gid + "'"
	}
	for {
		if !wr.conn.IsClosed() && wr.exec(tctx, second) == nil {
			return commit, nil
		}
		there, err := wr.isPrepared(ctx, gid, xid)
		if err != nil {
			return false, err
		}
		if !there {
			return wr.outcome(ctx, xid)
		}
		if conn, err := pgx.Connect(ctx, wr.dsn); err == nil {
			wr.conn = conn
			tctx = ctx
		}
	}
}

// isPrepared asks whether a transaction is prepared, until that is decided.
func (wr *writer) isPrepared(ctx context.Context, gid, xid string) (bool, error) {
	for {
		var there bool
		var state string
		err := wr.world.pool.QueryRow(ctx, isPrepared, gid).Scan(&there)
		if err == nil && there {
			return true, nil
		}
		if err == nil {
			err = wr.world.pool.QueryRow(ctx, transactionState, xid).Scan(&state)
		}
		if err == nil && state != "in progress" {
			return false, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return false, fmt.Errorf("whether transaction %s is prepared is not known: %w", xid, ctx.Err())
		}
	}
}
