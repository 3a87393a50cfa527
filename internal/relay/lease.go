package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// The first keys of the advisory locks: "cdcr" in ASCII, with a table's OID, and "cdcs", with the hash of the slot's name.
const (
	lockClass = 0x63646372
	slotClass = 0x63646373
)

// errTaken is the reason to stand by.
var errTaken = errors.New("another instance is active")

// errReadOnly is the reason to stand by, and not to be ready, where no host of the DSN takes writes.
var errReadOnly = errors.New("no host of the DSN is a primary that accepts writes: let postgres.dsn name the primary, or all hosts of the cluster")

// errDemoted ends a term on a server that has become read-only, although its sessions stayed.
var errDemoted = errors.New("the server takes no writes any more")

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

// acquire tries once to lock every table and the slot ("": there is none), in a session of its own. It returns errTaken
// when another session has a table.
func acquire(ctx context.Context, dsn, slot string, outboxes []*table.Outbox) (*lease, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN for the lock can't be read: see postgres.dsn and postgres.direct_dsn") // the cause may quote the password
	}
	cfg.RuntimeParams["application_name"] = "cdc-relay lock"
	// A dead client is noticed by the server: by silence (a stopped process keeps its connection alive), and by TCP.
	cfg.RuntimeParams["idle_session_timeout"] = fmt.Sprint(serverPatience.Milliseconds())
	cfg.RuntimeParams["tcp_keepalives_idle"] = "5"
	cfg.RuntimeParams["tcp_keepalives_interval"] = "2"
	cfg.RuntimeParams["tcp_keepalives_count"] = "3"
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = answerWithin // for each host: one that is silent must not use up the time of the next
	}
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // a standby is of no use: the next host is tried
	}
	l := &lease{began: time.Now()}
	if l.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, unreachable(err)
	}
	if err := l.lock(ctx, slot, outboxes); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// unreachable says in one line why there is no session for the lock, and what to look at.
func unreachable(err error) error {
	var pg *pgconn.PgError
	remedy := "see postgres.dsn, or postgres.direct_dsn if it is set"
	switch {
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return errReadOnly
	case errors.As(err, &pg) && pg.Code == codeProtocolViolation: // pgbouncer: "unsupported startup parameter"
		remedy = "the lock needs a session of its own: let postgres.direct_dsn lead to Postgres itself, not to a pooler"
	}
	return fmt.Errorf("connect for the lock: %s (%s)", strings.Join(strings.Fields(err.Error()), " "), remedy)
}

const codeProtocolViolation = "08P01"

// lock takes the tables in one order, so that of two relays that list them differently one gets all of them.
func (l *lease) lock(ctx context.Context, slot string, outboxes []*table.Outbox) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	asked := time.Now()
	outboxes = slices.SortedFunc(slices.Values(outboxes), func(a, b *table.Outbox) int { return cmp.Compare(a.OID, b.OID) })
	for _, o := range outboxes {
		var got bool
		err := l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", int32(lockClass), int32(o.OID)).Scan(&got)
		switch {
		case err != nil:
			return fmt.Errorf("lock table %s: %w", o, err)
		case !got:
			return fmt.Errorf("table %s: %w", o, errTaken)
		}
	}
	if slot != "" {
		if err := l.lockSlot(ctx, slot); err != nil {
			return err
		}
	}
	l.renew(asked)
	return nil
}

// lockSlot keeps relays for different tables from taking one slot away from each other for ever.
func (l *lease) lockSlot(ctx context.Context, slot string) error {
	var got bool
	err := l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext($2))", int32(slotClass), slot).Scan(&got)
	switch {
	case err != nil:
		return fmt.Errorf("lock slot %s: %w", slot, err)
	case !got:
		return fmt.Errorf("slot %s serves another relay, for other tables: give this one a slot of its own (replication.slot)", slot)
	}
	return nil
}

// keep renews the lease until ctx ends (nil) or it is lost: the session has ended or does not answer, or the server takes
// no writes any more (it was demoted while the session stayed).
func (l *lease) keep(ctx context.Context, log *slog.Logger) error {
	for {
		err := l.listen(ctx)
		if err == nil {
			err = l.ask(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			l.until.Store(0)
			log.Warn("the lock is lost", "error", err)
			return fmt.Errorf("%w: %w", errLeaseOver, err)
		}
	}
}

// listen waits for the next heartbeat, and for the session's end: another instance can have the lock from then on, so that
// there is no time to wait.
func (l *lease) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := l.conn.WaitForNotification(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// ask renews the lease if the server answers that it is still the primary.
func (l *lease) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	asked := time.Now()
	var readOnly bool
	if err := l.conn.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return errDemoted
	}
	l.renew(asked)
	return nil
}

// release gives the locks back by ending the session.
func (l *lease) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // the session ends either way
}
