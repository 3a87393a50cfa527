package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// OrderPaid is an event of the shop.
type OrderPaid struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

func Example() {
	ctx := context.Background()
	pool, done := shop()
	defer done()

	pay := func(order string, cents int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1", order); err != nil {
				return err
			}
			err := outbox.Write(ctx, tx, outbox.Message{
				Topic: "orders", Key: order, Type: "OrderPaid", Payload: outbox.JSON(OrderPaid{order, cents}),
			})
			if err != nil {
				return err
			}
			if cents == 0 {
				return errors.New("nobody pays nothing") // the order stays new, and the event never was
			}
			return nil
		})
	}
	fmt.Println(pay("A-1", 4200))
	fmt.Println(pay("A-2", 0))
	show(pool)
	// Output:
	// <nil>
	// nobody pays nothing
	// orders A-1 OrderPaid {} {"order":"A-1","cents":4200} PENDING
}

func ExampleWriteSQL() {
	ctx := context.Background()
	pool, done := shop()
	defer done()
	db := stdlib.OpenDBFromPool(pool) // or sql.Open, with any driver

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid'"); err != nil {
		log.Panic(err)
	}
	err = outbox.WriteSQL(ctx, tx,
		outbox.Message{Topic: "orders", Key: "A-1", Type: "OrderPaid", Payload: outbox.JSON(OrderPaid{"A-1", 4200})},
		outbox.Message{Topic: "orders", Key: "A-2", Type: "OrderPaid", Payload: outbox.JSON(OrderPaid{"A-2", 100})},
	)
	if err != nil {
		log.Panic(err)
	}
	if err := tx.Commit(); err != nil {
		log.Panic(err)
	}
	show(pool)
	// Output:
	// orders A-1 OrderPaid {} {"order":"A-1","cents":4200} PENDING
	// orders A-2 OrderPaid {} {"order":"A-2","cents":100} PENDING
}

// A Writer with options. With OpenTelemetry the function for TraceContext is
//
//	func(ctx context.Context) (traceparent, tracestate string) {
//		carrier := propagation.MapCarrier{}
//		propagation.TraceContext{}.Inject(ctx, carrier)
//		return carrier["traceparent"], carrier["tracestate"]
//	}
func ExampleNew() {
	ctx := context.Background()
	pool, done := shop()
	defer done()

	w, err := outbox.New(
		outbox.Table("public.outbox"),
		outbox.TraceContext(func(context.Context) (traceparent, tracestate string) {
			return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""
		}),
	)
	if err != nil {
		log.Panic(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return w.Write(ctx, tx, outbox.Message{Topic: "orders", Key: "A-1", Type: "OrderPaid", Payload: outbox.JSON(OrderPaid{"A-1", 4200})})
	})
	if err != nil {
		log.Panic(err)
	}
	show(pool)
	// Output:
	// orders A-1 OrderPaid {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {"order":"A-1","cents":4200} PENDING
}

func ExampleWrite_refused() {
	err := outbox.Write(context.Background(), someTx{}, outbox.Message{Topic: "orders", Payload: outbox.JSON(make(chan int))})
	fmt.Println(errors.Is(err, outbox.ErrInvalid))
	fmt.Println(err)
	// Output:
	// true
	// write to the outbox: invalid message: message 1 (topic "orders"): the payload can't be written as JSON: json: unsupported type: chan int
}

type someTx struct{ pgx.Tx }
