package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// The lease. The server ends a session that is silent for serverPatience, and the lock goes with it; the relay asks each
// heartbeat, and takes its lease for over after leaseFor without an answer, which is earlier. So an instance that was
// stopped or cut off stops publishing before another can begin, up to the one sink call it has under way.
const (
	heartbeat      = 2500 * time.Millisecond
	answerWithin   = 3 * time.Second
	leaseFor       = 7 * time.Second
	serverPatience = 10 * time.Second
	standbyPause   = time.Second
)

// lockClass is the first key of the advisory locks ("cdcr" in ASCII); the second is the table's OID.
const lockClass = 0x63646372

// errTaken is the reason to stand by.
var errTaken = errors.New("another instance is active")

// errLeaseOver ends a term.
var errLeaseOver = errors.New("the lock is lost")

// lease is the right to be active.
type lease struct {
	conn  *pgx.Conn
	until atomic.Int64 // nanoseconds on the clock since began
	began time.Time
}

// valid reports whether this instance may act now.
func (l *lease) valid() error {
	if time.Since(l.began) >= time.Duration(l.until.Load()) {
		return errLeaseOver
	}
	return nil
}

func (l *lease) renew(asked time.Time) { l.until.Store(int64(asked.Sub(l.began) + leaseFor)) }

// acquire tries once to lock every table, in a session of its own. It returns errTaken when another session has one.
func acquire(ctx context.Context, dsn string, outboxes []*table.Outbox) (*lease, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("parse the DSN for the lock: %w", err)
	}
	cfg.RuntimeParams["application_name"] = "cdc-relay lock"
	// A dead client is noticed by the server: by silence (a stopped process keeps its connection alive), and by TCP.
	cfg.RuntimeParams["idle_session_timeout"] = fmt.Sprint(serverPatience.Milliseconds())
	cfg.RuntimeParams["tcp_keepalives_idle"] = "5"
	cfg.RuntimeParams["tcp_keepalives_interval"] = "2"
	cfg.RuntimeParams["tcp_keepalives_count"] = "3"
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	l := &lease{began: time.Now()}
	if l.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connect for the lock: %w", err)
	}
	if err := l.lock(ctx, outboxes); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

func (l *lease) lock(ctx context.Context, outboxes []*table.Outbox) error {
	asked := time.Now()
	for _, o := range outboxes {
		var got, standby bool
		err := l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2), pg_is_in_recovery()", int32(lockClass), int32(o.OID)).Scan(&got, &standby)
		switch {
		case err != nil:
			return fmt.Errorf("lock table %s: %w", o, err)
		case standby:
			return fmt.Errorf("lock table %s: the server is a standby; name the primary in postgres.dsn, or several hosts with target_session_attrs=read-write", o)
		case !got:
			return fmt.Errorf("table %s: %w", o, errTaken)
		}
	}
	l.renew(asked)
	return nil
}

// keep renews the lease until ctx ends (nil) or it is lost.
func (l *lease) keep(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		asked := time.Now()
		actx, cancel := context.WithTimeout(ctx, answerWithin)
		_, err := l.conn.Exec(actx, "SELECT")
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			log.Warn("lock session does not answer", "error", err)
			return fmt.Errorf("%w: %w", errLeaseOver, err)
		}
		l.renew(asked)
	}
}

// release gives the locks back by ending the session.
func (l *lease) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // the session ends either way
}
