package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// sample is what the database said when it was last asked.
type sample struct {
	at     time.Time // when it was last asked with success
	tables lifecycle.Snapshot
	slot   replication.SlotFigures
	err    error // of the last time it was asked
}

// sampler looks at the tables and the slot every now and then, on the active instance and on those that stand by.
type sampler struct {
	every  time.Duration
	slot   string // empty: replication is switched off
	pool   *pgxpool.Pool
	tables *lifecycle.Sampler
	slots  *replication.Metrics
	log    *slog.Logger

	mu     sync.Mutex
	last   sample
	stream *replication.Stream // of the term under way
}

func newSampler(cfg Config, pool *pgxpool.Pool, outboxes []*table.Outbox, m *Metrics, log *slog.Logger) *sampler {
	return &sampler{
		every: cfg.SampleEvery, slot: cfg.slot(), pool: pool, tables: lifecycle.NewSampler(pool, outboxes, m.Lifecycle), slots: m.Replication, log: log,
	}
}

// attend names the stream that is looked after; nil: none.
func (s *sampler) attend(stream *replication.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = stream
}

func (s *sampler) snapshot() sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *sampler) look(run context.Context) {
	ctx, cancel := context.WithTimeout(run, s.every)
	defer cancel()
	s.mu.Lock()
	stream, was := s.stream, s.last.err
	s.mu.Unlock()
	next := sample{at: time.Now()}
	next.tables, next.err = s.tables.Sample(ctx)
	if next.err == nil {
		switch {
		case stream != nil:
			next.slot, next.err = stream.Sample(ctx, s.pool)
		case s.slot != "":
			next.slot, next.err = replication.SampleSlot(ctx, s.pool, s.slot, s.slots)
		}
	}
	if next.err != nil && was == nil && run.Err() == nil {
		s.log.Warn("look at the tables and the slot failed", "error", next.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if next.err != nil {
		s.last.err = next.err
		return
	}
	s.last = next
}
