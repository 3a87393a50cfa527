package redisstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// errTransaction stands before what the server replied.
var errTransaction = errors.New("the relay's user gets no transaction (MULTI, EXEC, DISCARD) from the server")

// tryWrite makes the server look at an XADD to the stream as it would before doing it, and not do it: memory, disk,
// replicas, role, the user's rights. What the stream is, it doesn't look at. After an error the link must not be used for
// anything else: the connection may be within a transaction.
func tryWrite(ctx context.Context, s *server, stream string) error {
	conn := s.Conn()
	defer func() { _ = conn.Close() }() // it goes back to the pool, or is broken
	if err := begin(ctx, conn); err != nil {
		return err
	}
	refusal := conn.Do(ctx, "xadd", stream, "*", fieldID, "").Err()
	if err := end(ctx, conn); err != nil {
		return err
	}
	return refusal
}

// begin starts a transaction, and waits for the answer: without one, XADD would write.
func begin(ctx context.Context, conn *redis.Conn) error {
	return noTransaction(conn.Do(ctx, "multi").Err())
}

// end gives the transaction up.
func end(ctx context.Context, conn *redis.Conn) error {
	return noTransaction(conn.Do(ctx, "discard").Err())
}

// noTransaction says what is wrong when the server doesn't know such a command, or doesn't allow it.
func noTransaction(err error) error {
	switch serverCode(err) {
	case "ERR", "NOPERM":
		return fmt.Errorf("%w: %w", errTransaction, err)
	default:
		return err
	}
}

// ignoreServer drops an error that a server replied with.
func ignoreServer(err error) error {
	if serverCode(err) != "" {
		return nil
	}
	return err
}
