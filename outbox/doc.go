// Package outbox writes events into the outbox table that cdc-relay delivers, in the transaction of the caller: what is
// committed is delivered, what is rolled back never is.
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1`, id)
//	...
//	err = outbox.Write(ctx, tx, outbox.Message{
//		Topic: "orders", Key: id, Type: "OrderPaid", Payload: outbox.JSON(paid),
//	})
//	...
//	err = tx.Commit(ctx)
//
// Invariants:
//   - Only a transaction can be written in: Write takes a pgx.Tx and WriteSQL a *sql.Tx, which neither a connection nor a pool
//     is. Neither of them begins, commits or rolls back anything.
//   - A message that the table, or the relay after it, couldn't take is refused before the database sees it, so that the
//     transaction is still good. The error is then ErrInvalid. After any other error the transaction can only be rolled
//     back.
//   - All messages of a call are one statement (one for each 1000 messages, or 8 MiB), and their rows have ids in the order
//     of the messages.
//
// The package knows the table that cdc-relay init makes. It works with every driver for database/sql and with every way
// in which pgx can run a query, through transaction pooling too.
package outbox
