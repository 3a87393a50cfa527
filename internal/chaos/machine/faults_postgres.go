package machine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

func postgresFaults() []fault {
	terminate := func(application string) func(context.Context, *world, *rand.Rand) error {
		return func(ctx context.Context, w *world, rng *rand.Rand) error {
			for range 1 + rng.IntN(3) {
				if _, err := w.pool.Exec(ctx, terminateSessions, application); err != nil {
					return err
				}
				pause(ctx, between(rng, 0, 300*time.Millisecond))
			}
			return nil
		}
	}
	return []fault{
		{kind: "Postgres restarted (fast)", inject: restartPostgres("fast")},
		{kind: "Postgres restarted (immediate)", inject: restartPostgres("immediate")},
		{kind: "walsender terminated", inject: terminateStream},
		{kind: "pool sessions terminated", inject: terminate("cdc-relay")},
		{kind: "lock session terminated", inject: terminate("cdc-relay lock")},
		{kind: "slot dropped", inject: dropTheSlot},
		{kind: "slot invalidated", inject: invalidateSlot, alone: true, long: true},
		{kind: "publication dropped", inject: dropPublication},
		{kind: "column added and dropped", inject: changeSchema},
		{kind: "table rewritten (VACUUM FULL)", inject: rewriteTable},
		{kind: "table locked for a while", inject: lockTable},
		{kind: "long-running reader", inject: readLong},
		{kind: "transaction larger than dispatch", inject: writeLarge},
	}
}

func restartPostgres(mode string) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		away := between(rng, 0, 2*time.Second)
		return w.bed.restartPostgres(ctx, mode, func() { pause(ctx, away) })
	}
}

func terminateStream(ctx context.Context, w *world, rng *rand.Rand) error {
	for range 1 + rng.IntN(3) {
		if _, err := w.pool.Exec(ctx, terminateWalsender, w.slot()); err != nil {
			return err
		}
		pause(ctx, between(rng, 0, 500*time.Millisecond))
	}
	return nil
}

func dropTheSlot(ctx context.Context, w *world, _ *rand.Rand) error {
	for ctx.Err() == nil {
		if _, err := w.pool.Exec(ctx, terminateWalsender, w.slot()); err != nil {
			return err
		}
		tag, err := w.pool.Exec(ctx, dropSlot, w.slot())
		if err == nil && tag.RowsAffected() > 0 {
			return nil
		}
		// It may be in use again, or away already with whatever else is broken now.
		var status string
		if w.pool.QueryRow(ctx, slotStatus, w.slot()).Scan(&status) == nil && status == "gone" {
			return nil
		}
	}
	return nil
}

// invalidateSlot stops the relay and writes WAL until the server gives the slot up.
func invalidateSlot(ctx context.Context, w *world, _ *rand.Rand) error {
	i := w.active()
	if err := w.bed.postgres.Set(ctx, "max_slot_wal_keep_size", "1MB"); err != nil {
		return err
	}
	i.signal(syscall.SIGSTOP)
	defer i.signal(syscall.SIGCONT)
	status := ""
	for n := 0; n < 40 && status != "lost" && ctx.Err() == nil; n++ {
		if _, err := w.pool.Exec(ctx, writeWAL); err != nil {
			return err
		}
		if n%3 == 2 {
			if _, err := w.pool.Exec(ctx, "CHECKPOINT"); err != nil {
				return err
			}
		}
		if err := w.pool.QueryRow(ctx, slotStatus, w.slot()).Scan(&status); err != nil {
			return err
		}
	}
	err := w.bed.postgres.Set(context.WithoutCancel(ctx), "max_slot_wal_keep_size", "-1")
	if status != "lost" && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("the slot is not invalidated: %s", status))
	}
	return err
}

func dropPublication(ctx context.Context, w *world, _ *rand.Rand) error {
	_, err := w.pool.Exec(ctx, "DROP PUBLICATION IF EXISTS "+publicationName)
	return err
}

func changeSchema(ctx context.Context, w *world, rng *rand.Rand) error {
	for _, sql := range []string{"ALTER TABLE %s ADD COLUMN tenant text DEFAULT 'x'", "ALTER TABLE %s DROP COLUMN tenant"} {
		for _, table := range tables {
			if _, err := w.pool.Exec(ctx, fmt.Sprintf(sql, table)); err != nil {
				return err
			}
		}
		pause(ctx, between(rng, 500*time.Millisecond, 2*time.Second))
	}
	return nil
}

// rewriteTable keeps everybody from a table until it is written anew.
func rewriteTable(ctx context.Context, w *world, rng *rand.Rand) error {
	_, err := w.pool.Exec(ctx, "VACUUM FULL "+tables[rng.IntN(len(tables))])
	return err
}

// lockTable keeps everybody from a table for a while, as a migration does.
func lockTable(ctx context.Context, w *world, rng *rand.Rand) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "LOCK TABLE "+tables[rng.IntN(len(tables))]); err != nil {
		return err
	}
	pause(ctx, between(rng, time.Second, 5*time.Second))
	return nil
}

// readLong begins a transaction that holds vacuum back for a while after this.
func readLong(ctx context.Context, w *world, rng *rand.Rand) error {
	hold := between(rng, 10*time.Second, 30*time.Second)
	conn, err := pgx.Connect(ctx, w.bed.postgres.DSN(w.database))
	if err != nil {
		return err
	}
	var n int
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	if err == nil {
		err = conn.QueryRow(ctx, holdXmin).Scan(&n)
	}
	w.side.Go(func() {
		pause(ctx, hold)
		_ = conn.Close(context.WithoutCancel(ctx)) // the server ends the transaction
	})
	return err
}

// writeLarge commits more rows at once than the relay may hold.
func writeLarge(ctx context.Context, w *world, _ *rand.Rand) error {
	return w.large.once(context.WithoutCancel(ctx))
}
