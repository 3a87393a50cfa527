package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// takeoverAfter is how long a walsender of our own name may hold the slot before it is ended. Run is called only by
	// the active instance, so that this is what a dead connection or a dead instance left behind; an instance that has
	// just lost its lock gets time to go by itself.
	takeoverAfter = 5 * time.Second
	// freeTimeout is how long to wait until a terminated walsender has let go of the slot.
	freeTimeout = 2 * time.Second
)

// takeover decides about a slot that another session uses. It belongs to the goroutine of Run.
type takeover struct {
	pid   int32
	since time.Time
}

// within is the pause before the next attempt, which comes no later than the time when the walsender may be ended.
func (t *takeover) within(pause time.Duration) time.Duration {
	if left := time.Until(t.since.Add(takeoverAfter)); left > 0 {
		return min(pause, left)
	}
	return pause
}

// claim returns nil when the slot is free: the walsender was stale and has been terminated.
func (t *takeover) claim(ctx context.Context, conn *pgx.Conn, cfg Config, own string, s slot) error {
	if t.pid != s.activePID {
		*t = takeover{pid: s.activePID, since: time.Now()}
	}
	if s.application != own || time.Since(t.since) < takeoverAfter {
		return s.busy(cfg.Slot)
	}
	if _, err := conn.Exec(ctx, terminateWalsender, cfg.Slot, s.activePID); err != nil {
		c := s.busy(cfg.Slot)
		c.err = fmt.Errorf("terminate it: %w", err)
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	for {
		now, err := readSlot(ctx, conn, cfg.Slot)
		if err != nil {
			return err
		}
		if now.activePID == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return now.busy(cfg.Slot)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
