package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// SlotFigures are what the server says of the slot.
type SlotFigures struct {
	// Exists is false when there is no slot of that name; the rest is then zero, but for WALStatus.
	Exists bool `json:"exists"`
	Active bool `json:"active"`
	// WALStatus is Postgres' wal_status (reserved, extended, unreserved, lost), or missing.
	WALStatus string `json:"wal_status"`
	// LagBytes is the WAL that was written and isn't confirmed, RetainedBytes what the server keeps for the slot.
	LagBytes      int64 `json:"lag_bytes"`
	RetainedBytes int64 `json:"retained_wal_bytes"`

	ConfirmedFlushLSN pglogrepl.LSN `json:"-"`
	RestartLSN        pglogrepl.LSN `json:"-"`
}

// SampleSlot reads the figures of a slot in one cheap query, and sets the gauges of metrics, which may be nil.
func SampleSlot(ctx context.Context, q table.Querier, slot string, metrics *Metrics) (SlotFigures, error) {
	f := SlotFigures{Exists: true}
	err := q.QueryRow(ctx, sampleSlot, slot).Scan(&f.Active, &f.WALStatus, &f.ConfirmedFlushLSN, &f.RestartLSN, &f.LagBytes, &f.RetainedBytes)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		f = SlotFigures{WALStatus: "missing"}
	case err != nil:
		return SlotFigures{}, fmt.Errorf("sample slot %s: %w", slot, err)
	}
	metrics.sampled(f)
	return f, nil
}

// Sample is SampleSlot for this stream. It also looks whether the publication still covers the outboxes: when it
// doesn't, most versions go on silently without their rows. Then the stream is restarted, and sets it up again or says
// why it can't. Call it every few seconds with the pool.
func (s *Stream) Sample(ctx context.Context, q table.Querier) (SlotFigures, error) {
	f, err := SampleSlot(ctx, q, s.cfg.Slot, s.metrics)
	if err != nil {
		return f, err
	}
	sess := s.current()
	if sess == nil {
		return f, nil
	}
	p, err := readPublication(ctx, q, s.cfg.Publication, s.outboxes)
	if err != nil {
		return f, err
	}
	if len(p.defects(s.cfg.Publication, s.outboxes)) > 0 {
		sess.restart.Store(true)
		sess.wake()
	}
	return f, nil
}
