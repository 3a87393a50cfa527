package pgtest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool opens a connection pool that is closed at the test's end.
func (d *DB) Pool(t TB) *pgxpool.Pool {
	t.Helper()
	return NewPool(t, d.DSN)
}

// NewPool opens a connection pool for dsn that is closed at the test's end.
func NewPool(t TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool fails the test when a connection was never given back: Close alone would wait for ever.
func closePool(t TB, pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(cleanupTimeout):
		t.Errorf("a connection of the pool was never released")
	}
}

// Connect opens a connection that is closed at the test's end.
func (d *DB) Connect(t TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), d.DSN)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		_ = conn.Close(ctx) // the test may have broken it on purpose
	})
	return conn
}

// Exec runs SQL, several statements too when there are no args, and returns the number of affected rows.
func (d *DB) Exec(t TB, sql string, args ...any) int64 {
	t.Helper()
	tag, err := d.helper(t).Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// QueryRow runs a query for one row, whose Scan fails the test on an error.
func (d *DB) QueryRow(t TB, sql string, args ...any) Row {
	t.Helper()
	return Row{t: t, sql: sql, row: d.helper(t).QueryRow(context.Background(), sql, args...)}
}

// Row is the result of DB.QueryRow.
type Row struct {
	t   TB
	sql string
	row pgx.Row
}

// Scan reads the row's columns.
func (r Row) Scan(dest ...any) {
	r.t.Helper()
	if err := r.row.Scan(dest...); err != nil {
		r.t.Fatalf("%s: %v", r.sql, err)
	}
}

// One is the single value that a query returns.
func One[T any](t TB, d *DB, sql string, args ...any) T {
	t.Helper()
	var v T
	d.QueryRow(t, sql, args...).Scan(&v)
	return v
}

// All are the values of a query with one column.
func All[T any](t TB, d *DB, sql string, args ...any) []T {
	t.Helper()
	rows, err := d.helper(t).Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

func (d *DB) helper(t TB) *pgxpool.Pool {
	t.Helper()
	pool, err := d.pool()
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	return pool
}
