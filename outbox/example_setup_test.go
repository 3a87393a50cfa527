package outbox_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// example stands in for the test that an example hasn't got.
type example struct{ cleanups []func() }

func (*example) Helper()                        {}
func (*example) Name() string                   { return "example" }
func (*example) Logf(string, ...any)            {}
func (*example) Failed() bool                   { return false }
func (*example) Errorf(format string, a ...any) { log.Panicf(format, a...) }
func (*example) Fatalf(format string, a ...any) { log.Panicf(format, a...) }
func (*example) Skipf(format string, a ...any)  { log.Panicf(format, a...) }
func (e *example) Cleanup(f func())             { e.cleanups = append(e.cleanups, f) }

func (e *example) done() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

// shop is a database with an outbox and two orders.
func shop() (pool *pgxpool.Pool, done func()) {
	e := &example{}
	db := pgtest.Database(e)
	conn := db.Connect(e)
	if err := table.Init(context.Background(), conn, table.DDLOptions{Table: "outbox"}); err != nil {
		log.Panic(err)
	}
	db.Exec(e, `CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL); INSERT INTO orders VALUES ('A-1', 'new'), ('A-2', 'new')`)
	return db.Pool(e), e.done
}

// show prints the rows of the outbox.
func show(pool *pgxpool.Pool) {
	rows, err := pool.Query(context.Background(), "SELECT topic, key, event_type, headers::text, payload::text, status FROM outbox ORDER BY id")
	if err != nil {
		log.Panic(err)
	}
	defer rows.Close()
	for rows.Next() {
		var topic, key, typ, headers, payload, status string
		if err := rows.Scan(&topic, &key, &typ, &headers, &payload, &status); err != nil {
			log.Panic(err)
		}
		fmt.Println(topic, key, typ, headers, payload, status)
	}
}
