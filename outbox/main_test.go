package outbox_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// initialised is a database with the table that cdc-relay init makes.
func initialised(t testing.TB, o table.DDLOptions) *pgtest.DB {
	t.Helper()
	db := pgtest.Database(t)
	if err := table.Init(t.Context(), db.Connect(t), o); err != nil {
		t.Fatal(err)
	}
	return db
}

func newWriter(t testing.TB, options ...outbox.Option) *outbox.Writer {
	t.Helper()
	w, err := outbox.New(options...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// write writes in a transaction of its own.
func write(t testing.TB, conn *pgx.Conn, w *outbox.Writer, messages ...outbox.Message) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error { return w.Write(context.Background(), tx, messages...) })
	if err != nil {
		t.Fatal(err)
	}
}

// stored is a row as it is in the table, with the payload's bytes.
type stored struct {
	ID, Topic      string
	Key, Type      *string
	Headers        map[string]string
	Payload        *string
	Status         string
	Due, Defaulted bool
}

// rows are the table's rows in the order of their ids, with the payload as text (bytea: decoded from UTF-8).
func rows(t testing.TB, conn *pgx.Conn, payload string) []stored {
	t.Helper()
	got, err := conn.Query(context.Background(), `SELECT message_id::text, topic, key, event_type, headers, `+payload+`, status,
		next_attempt_at <= now(), next_attempt_at = created_at FROM outbox ORDER BY id`, pgx.QueryExecModeDescribeExec)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(got, pgx.RowToStructByPos[stored])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
