package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/admin"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/relay"
)

// source words the relay's status for the endpoint.
type source struct {
	relay *relay.Relay
	cfg   *config.Config
}

// Status implements admin.Source.
func (s *source) Status(context.Context) admin.Status {
	r := s.relay.Status()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	st := admin.Status{
		Version: readBuild().Version, Instance: fmt.Sprintf("%s:%d", host, os.Getpid()), Now: time.Now(),
		Leader: r.Leader, LeaderSince: r.LeaderSince, Mode: dispatch.Standby.String(), ModeReason: r.Reason,
		Stream:     admin.Stream{Enabled: r.StreamWanted, Up: r.Stream.Up, Reason: r.Stream.Reason, Reconnects: int64(r.Stream.Reconnects)},
		Sink:       admin.Sink{Kind: s.cfg.Sink.Kind, Up: true},
		Throughput: admin.Throughput{PublishedTotal: r.Published},
		Ready:      len(r.Health.Reasons) == 0, Reasons: r.Health.Reasons, Degraded: r.Health.Degraded, Stuck: r.Health.Stuck,
	}
	if r.Stream.Up {
		st.Stream.LastMessageAgeSeconds = r.Stream.LastMessageAge.Seconds()
		st.Stream.ConfirmedLSN = r.Stream.ConfirmedLSN.String()
	}
	if r.StreamWanted {
		st.Slot = admin.Slot{Name: s.cfg.Replication.Slot, Active: r.Slot.Active, LagBytes: r.Slot.LagBytes, RetainedWALBytes: r.Slot.RetainedBytes}
		if r.Slot.Exists {
			st.Slot.WALStatus = r.Slot.WALStatus
		}
	}
	if r.Leader {
		d := r.Dispatch
		st.Mode, st.ModeReason, st.ModeSince = d.Mode.String(), d.Reason, d.Since
		st.Sink.Up, st.Sink.Reason = d.SinkUp, d.SinkReason
		st.InFlight, st.BlockedKeys = admin.InFlight{Events: d.InFlight, Bytes: int64(d.Bytes)}, d.Blocked
		for _, c := range d.Changes {
			st.Transitions = append(st.Transitions, admin.Transition{At: c.At, From: c.From.String(), To: c.To.String(), Reason: c.Reason})
		}
	}
	for _, t := range r.Tables.Tables {
		row := admin.Table{Name: t.Table, OldestPendingAgeSeconds: t.OldestPending.Seconds(), PublishedEstimate: t.Published}
		row.Pending, row.PendingCapped = capped(t.Pending)
		row.Dead, row.DeadCapped = capped(t.Dead)
		st.Tables = append(st.Tables, row)
	}
	return st
}

// deadActions are what the status page does with DEAD rows.
type deadActions struct{ dead *lifecycle.Dead }

// ListDead implements admin.Actions.
func (a deadActions) ListDead(ctx context.Context, f admin.DeadFilter) ([]admin.DeadRow, error) {
	rows, err := a.dead.List(ctx, lifecycle.Filter{Table: f.Table, Limit: f.Limit})
	out := make([]admin.DeadRow, len(rows))
	for i, r := range rows {
		out[i] = admin.DeadRow{
			ID: r.ID, Table: r.Table, MessageID: r.MessageID, Topic: r.Topic, Key: r.Key, EventType: r.EventType,
			Attempts: int(r.Attempts), LastError: r.LastError, CreatedAt: r.CreatedAt,
		}
	}
	return out, wrongInput(err)
}

// RetryDead implements admin.Actions.
func (a deadActions) RetryDead(ctx context.Context, o admin.Order) (int, error) {
	return ordered(ctx, a.dead.Retry, o)
}

// DiscardDead implements admin.Actions.
func (a deadActions) DiscardDead(ctx context.Context, o admin.Order) (int, error) {
	return ordered(ctx, a.dead.Discard, o)
}

func ordered(ctx context.Context, do func(context.Context, lifecycle.Filter, lifecycle.Order) (int64, error), o admin.Order) (int, error) {
	n, err := do(ctx, lifecycle.Filter{Table: o.Table, IDs: o.IDs}, lifecycle.Order{Actor: o.By, Reason: o.Reason})
	return int(n), wrongInput(err)
}

// wrongInput says to the endpoint when the request is at fault.
func wrongInput(err error) error {
	if errors.Is(err, lifecycle.ErrFilter) {
		return fmt.Errorf("%w: %w", admin.ErrInput, err)
	}
	return err
}
