package relay

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

// Status is what a relay says of itself.
type Status struct {
	Leader      bool
	LeaderSince time.Time
	// Reason is why this instance stands by; empty when it is active.
	Reason   string
	Dispatch dispatch.Status // meaningless unless Leader
	// StreamWanted is false when replication is switched off.
	StreamWanted bool
	Stream       replication.State
	Slot         replication.SlotFigures
	Tables       lifecycle.Snapshot
	// Published counts the events acknowledged since the process began.
	Published int64
	// SampledAt is when Slot and Tables were read; zero: not yet.
	SampledAt time.Time
	Health    Health
}

// Health is what readiness and liveness say. Reasons make the relay not ready; Degraded is what makes it slower or less
// safe while it does its work.
type Health struct {
	Reasons  []string
	Degraded []string
	// Stuck is set when the relay itself no longer moves, and only a restart can help.
	Stuck string
}

// stall is how long work may wait without any progress before the relay counts as not ready, and stuck is how long the
// owner of dispatch may say nothing at all before the process counts as dead.
const (
	stall = 30 * time.Second
	stuck = 2 * time.Minute
)

// Status may be called from any goroutine; it asks nobody.
func (r *Relay) Status() Status {
	sampled := r.sampler.snapshot()
	by := r.standby.Load()
	s := Status{
		Reason: by.reason, StreamWanted: r.cfg.Stream, Slot: sampled.slot, Tables: sampled.tables, SampledAt: sampled.at,
		Published: r.metrics.Dispatch.Published(),
	}
	t := r.active.Load()
	if t != nil && t.lease.valid() == nil { // else it is being wound up
		s.Leader, s.LeaderSince, s.Reason = true, t.began, ""
		s.Dispatch = t.dispatch.Status()
		if t.stream != nil {
			s.Stream = t.stream.State()
		}
	}
	s.Health = r.cfg.health(s, by.inOrder, sampled)
	return s
}

// health judges. inOrder says that an instance which isn't active need not be.
func (c Config) health(s Status, inOrder bool, sampled sample) (h Health) {
	now := time.Now()
	not := func(format string, args ...any) { h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...)) }
	slower := func(format string, args ...any) { h.Degraded = append(h.Degraded, fmt.Sprintf(format, args...)) }
	switch {
	case sampled.at.IsZero() && sampled.err == nil:
		not("starting: the database wasn't asked yet")
	case sampled.err != nil && now.Sub(sampled.at) > 2*c.SampleEvery:
		not("the database does not answer: %v", sampled.err)
	}
	if !s.Leader {
		if !inOrder {
			not("not active: %s", s.Reason)
		}
		return h
	}
	d := s.Dispatch
	if !d.SinkUp {
		not("the sink is not available: %s", d.SinkReason)
	}
	if waits := now.Sub(d.Progress); d.SinkUp && d.InFlight > 0 && waits > stall {
		not("%d events are in flight and nothing was settled for %s", d.InFlight, waits.Round(time.Second))
	}
	// What waits behind a failed event of its key is due as well; that passes find nothing else to do is in order then.
	late := stall + c.Dispatch.Interval
	waiting := d.Blocked > 0 && now.Sub(d.LastPass) <= late
	idle := d.SinkUp && d.InFlight == 0 && !waiting && now.Sub(d.Progress) > stall
	for _, t := range sampled.tables.Tables {
		if idle && t.OldestDue > late {
			not("table %s has a row that is due, %s old, and nothing is being delivered", t.Table, t.OldestDue.Round(time.Second))
		}
		if t.Dead > 0 {
			slower("table %s has DEAD rows: see cdc-relay dead list", t.Table)
		}
	}
	if d.Blocked > 0 {
		slower("keys whose events wait for a retry, or for a decision about a DEAD row: %d", d.Blocked)
	}
	switch {
	case !c.Stream:
		slower("replication.enabled is false: rows are delivered by polling")
	case !s.Stream.Up:
		slower("no replication stream, rows are delivered by polling: %s", s.Stream.Reason)
	}
	if now.Sub(d.Beat) > stuck {
		h.Stuck = fmt.Sprintf("dispatch has not moved for %s", now.Sub(d.Beat).Round(time.Second))
		not("%s", h.Stuck)
	}
	return h
}
