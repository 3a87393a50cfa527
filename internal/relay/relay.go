package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/fallbackpoll"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Config says how the parts are set up. Each part's own Config is documented there.
type Config struct {
	// DirectDSN reaches Postgres in a session of its own, for the lock.
	DirectDSN string
	// Stream is false when replication is switched off: the mode is POLLING.
	Stream      bool
	Replication replication.Config
	Poll        fallbackpoll.Config
	Dispatch    dispatch.Config
	Lifecycle   lifecycle.Config
	// StopTimeout bounds the wait for what is in flight when Run is told to stop; 30 s when 0. It takes the place of those
	// of the parts.
	StopTimeout time.Duration
	// SampleEvery is the pause between two looks at the tables and the slot; 15 s when 0.
	SampleEvery time.Duration
}

// slot is the name of the slot in use; empty: replication is switched off.
func (c Config) slot() string {
	if !c.Stream {
		return ""
	}
	return c.Replication.Slot
}

// Metrics are the metrics of all parts.
type Metrics struct {
	Replication *replication.Metrics
	Poll        *fallbackpoll.Metrics
	Dispatch    *dispatch.Metrics
	Lifecycle   *lifecycle.Metrics
	leader      prometheus.Gauge
}

// NewMetrics registers the metrics of all parts; maxTopics bounds the values of the topic label.
func NewMetrics(reg prometheus.Registerer, maxTopics int) *Metrics {
	leader := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cdc_relay_leader", Help: "1 while this instance is the active one.",
	})
	reg.MustRegister(leader)
	return &Metrics{
		Replication: replication.NewMetrics(reg), Poll: fallbackpoll.NewMetrics(reg),
		Dispatch: dispatch.NewMetrics(reg, maxTopics), Lifecycle: lifecycle.NewMetrics(reg), leader: leader,
	}
}

// Relay is one instance.
type Relay struct {
	cfg      Config
	pool     *pgxpool.Pool
	outboxes []*table.Outbox
	sink     sink.Sink
	alerter  *lifecycle.Alerter
	metrics  *Metrics
	log      *slog.Logger
	sampler  *sampler

	active  atomic.Pointer[term] // nil while standing by
	standby atomic.Pointer[standby]
}

// standby is why this instance is not active.
type standby struct {
	reason  string
	inOrder bool // another instance is active
}

// New makes a Relay. The caller owns pool, sink and alerter and closes them after Run.
func New(cfg Config, pool *pgxpool.Pool, outboxes []*table.Outbox, s sink.Sink, alerter *lifecycle.Alerter, metrics *Metrics, log *slog.Logger) *Relay {
	if cfg.SampleEvery == 0 {
		cfg.SampleEvery = 15 * time.Second
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = 30 * time.Second
	}
	r := &Relay{
		cfg: cfg, pool: pool, outboxes: outboxes, sink: s, alerter: alerter, metrics: metrics, log: log,
		sampler: newSampler(cfg, pool, outboxes, metrics, log),
	}
	r.standby.Store(&standby{reason: "starting"})
	return r
}

// Run stands by and is active in turn until ctx ends; then it waits for what is in flight, and returns nil, or
// dispatch.ErrUnsettled when the stop timeout was not enough.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { r.sampler.run(sctx) })

	for said := ""; ctx.Err() == nil; {
		l, err := r.acquire(ctx)
		if err == nil {
			said = ""
			err = r.lead(ctx, l)
		}
		if ctx.Err() != nil {
			if errors.Is(err, dispatch.ErrUnsettled) {
				return err
			}
			break
		}
		r.standBy(err)
		if text := err.Error(); text != said {
			said = text
			level := slog.LevelWarn
			if errors.Is(err, errTaken) {
				level = slog.LevelInfo
			}
			r.log.Log(ctx, level, "standing by", "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(standbyPause):
		}
	}
	return nil
}

// acquire gets a lease for tables that it can work with.
func (r *Relay) acquire(ctx context.Context) (*lease, error) {
	l, err := acquire(ctx, r.cfg.DirectDSN, r.cfg.slot(), r.outboxes)
	if err != nil {
		return nil, err
	}
	if err := r.fit(ctx); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// fit looks whether outcomes can be written down. An event that is published and can't be marked would be published again
// at every start.
func (r *Relay) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var errs []error
	for _, o := range r.outboxes {
		for _, f := range o.Check(ctx, r.pool) {
			if f.Severity == preflight.Failure {
				errs = append(errs, fmt.Errorf("%s: %s (%s)", f.Subject, f.Detail, f.Remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// standBy notes why this instance is not active; nil: it was told to stop.
func (r *Relay) standBy(err error) {
	s := &standby{reason: "stopped", inOrder: errors.Is(err, errTaken)}
	if err != nil {
		s.reason = err.Error()
	}
	r.standby.Store(s)
}

// lead runs one term and gives the lease back.
func (r *Relay) lead(ctx context.Context, l *lease) error {
	defer l.release()
	r.pool.Reset() // its connections may lead to a server that was left
	t := r.newTerm(l)
	r.standBy(errLeaseOver) // from when it is so
	r.active.Store(t)
	r.sampler.attend(t.stream)
	r.metrics.leader.Set(1)
	r.log.Info("this instance is active")
	err := t.run(ctx)
	r.standBy(err)
	r.active.Store(nil)
	r.sampler.attend(nil)
	r.metrics.leader.Set(0)
	r.metrics.Dispatch.Standby()
	r.log.Info("this instance is no longer active")
	return err
}
