package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cleanupTimeout bounds what the end of a test waits for.
const cleanupTimeout = 20 * time.Second

// DB is a test's own database.
type DB struct {
	Name        string
	DSN         string // a URL, as the superuser over TCP
	Slot        string // a valid name for a replication slot that no other test uses; no slot is made
	Publication string // the same for a publication
	Cluster     *Cluster

	pool func() (*pgxpool.Pool, error) // of the helpers, opened by the first
}

var databases atomic.Int64

// Database makes a database in the shared cluster. At the test's end its sessions are terminated and it is dropped, with
// its slots.
func Database(t TB) *DB {
	t.Helper()
	return Shared(t).Database(t)
}

// Database makes a database in this cluster, as the function Database does.
func (c *Cluster) Database(t TB) *DB {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	d := &DB{
		Name: name, DSN: c.DSN(name), Slot: "slot_" + name, Publication: "publication_" + name, Cluster: c,
	}
	d.pool = sync.OnceValues(d.open)
	if err := c.exec(context.Background(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if pool, err := d.pool(); err == nil {
			closePool(t, pool)
		}
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := d.drop(ctx); err != nil {
			t.Errorf("drop the database %s: %v", name, err)
		}
	})
	return d
}

// On is the same database on another server of the cluster, such as a promoted standby. Nothing is dropped for it: that server ends with the test.
func (d *DB) On(t TB, c *Cluster) *DB {
	other := &DB{Name: d.Name, DSN: c.DSN(d.Name), Slot: d.Slot, Publication: d.Publication, Cluster: c}
	other.pool = sync.OnceValues(other.open)
	t.Cleanup(func() {
		if pool, err := other.pool(); err == nil {
			closePool(t, pool)
		}
	})
	return other
}

// open opens the helpers' pool, which looks at every connection before it is used: tests restart servers and terminate
// sessions.
func (d *DB) open() (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.DSN)
	if err != nil {
		return nil, err
	}
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	return pgxpool.NewWithConfig(context.Background(), config)
}

// DSNAs is DSN for another user, DSNVia for another address, such as a proxy's.
func (d *DB) DSNAs(user string) string { return dsn(user, d.Cluster.Addr(), d.Name) }

// DSNVia is DSN with another host and port.
func (d *DB) DSNVia(addr string) string { return dsn("postgres", addr, d.Name) }

// ReplicationDSN is dsn for a connection that speaks the replication protocol.
func ReplicationDSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // only for DSNs of this package
	}
	q := u.Query()
	q.Set("replication", "database")
	u.RawQuery = q.Encode()
	return u.String()
}

// drop removes the database whatever is still connected to it. A stopped server keeps it.
func (d *DB) drop(ctx context.Context) error {
	if !d.Cluster.Running() {
		return nil
	}
	conn, err := pgx.Connect(ctx, d.Cluster.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var standby bool
	if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil || standby {
		return err
	}
	// Nobody comes back between being terminated and the drop.
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+d.Name+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	for {
		// A slot belongs to its walsender until that has ended, and a database can't be dropped while it has slots.
		_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, d.Name)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, d.Name)
		}
		if err == nil {
			_, err = conn.Exec(ctx, "DROP DATABASE "+d.Name+" WITH (FORCE)")
		}
		if err == nil || ctx.Err() != nil || conn.IsClosed() {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
