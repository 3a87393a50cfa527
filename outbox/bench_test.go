package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/table"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// BenchmarkWrite compares the statement that Write sends with what else could be: a row for each message in a multi-row
// VALUES, and a statement for each message, in one round trip (pgx.Batch) or each in its own.
func BenchmarkWrite(b *testing.B) {
	db := initialised(b, table.DDLOptions{Table: "outbox"})
	ctx, conn := context.Background(), db.Connect(b)
	const columns = "INSERT INTO outbox (message_id, topic, key, event_type, headers, payload) VALUES "
	text := `{"total": 42, "text": "` + strings.Repeat("x", 360) + `"}`
	values := func(n int) string {
		var rows []string
		for i := range n {
			p := 6 * i
			rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, $%d, $%d, $%d)", p+1, p+2, p+3, p+4, p+5, p+6))
		}
		return columns + strings.Join(rows, ", ")
	}
	row := func(i int) []any {
		return []any{outbox.NewID(), "orders", fmt.Sprint("customer-", i%100), "OrderPaid", `{}`, text}
	}
	ways := map[string]func(tx pgx.Tx, n int) error{
		"Write": func(tx pgx.Tx, n int) error {
			messages := make([]outbox.Message, n)
			for i := range messages {
				messages[i] = outbox.Message{Topic: "orders", Key: fmt.Sprint("customer-", i%100), Type: "OrderPaid", Payload: outbox.Text(text)}
			}
			return benchWriter.Write(ctx, tx, messages...)
		},
		"VALUES": func(tx pgx.Tx, n int) error {
			var args []any
			for i := range n {
				args = append(args, row(i)...)
			}
			_, err := tx.Exec(ctx, values(n), args...)
			return err
		},
		"pgx.Batch": func(tx pgx.Tx, n int) error {
			batch := &pgx.Batch{}
			for i := range n {
				batch.Queue(values(1), row(i)...)
			}
			return tx.SendBatch(ctx, batch).Close()
		},
		"one by one": func(tx pgx.Tx, n int) error {
			for i := range n {
				if _, err := tx.Exec(ctx, values(1), row(i)...); err != nil {
					return err
				}
			}
			return nil
		},
	}
	db.Exec(b, "ALTER TABLE outbox ALTER payload TYPE text")
	for _, n := range []int{1, 10, 100, 1000} {
		for name, way := range ways {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return way(tx, n) }); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

var benchWriter, _ = outbox.New(outbox.PayloadType("text"))
