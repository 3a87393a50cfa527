package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Lifecycle writes the outcomes of events into their rows, and purges.
type Lifecycle struct {
	cfg       Config
	pool      *pgxpool.Pool
	onSettled func([]event.Settled)
	alerter   *Alerter
	metrics   *Metrics
	log       *slog.Logger
	memory    *memory
	purger    *Purger

	queues map[int32]*queue // owned by Run's writer
	burst  burst            // owned by Run's writer

	wake chan struct{} // holds a token when the inbox may have something new
	idle chan struct{} // closed when unsettled is 0; guarded by mu, as the channel is replaced

	givenUp chan struct{}
	giveUp  func() // closes givenUp, once

	mu        sync.Mutex
	inbox     []outcome
	unsettled int // handed in, and not yet reported
}

// outcome is what has to be written into one row.
type outcome struct {
	event *event.Event
	err   error // nil: it was published

	// Of a failure.
	text     string
	dies     bool // whatever the row's number of attempts
	attempts int  // failed ones, this one included, as far as known
	pause    time.Duration

	tries   int       // how often the statement did not find the row
	missed  time.Time // since when
	at      time.Time // not to be tried again before
	unclear bool      // a statement with it ended with an error, and may nevertheless have been committed
}

// New makes a Lifecycle over the tables. onSettled is called, from one goroutine of Run, with what is committed in the
// table; it must not block for long. alerter may be nil.
func New(cfg Config, pool *pgxpool.Pool, outboxes []*table.Outbox, onSettled func([]event.Settled), metrics *Metrics,
	log *slog.Logger, alerter *Alerter,
) *Lifecycle {
	cfg = cfg.withDefaults()
	l := &Lifecycle{
		cfg: cfg, pool: pool, onSettled: onSettled, alerter: alerter, metrics: metrics, log: log, memory: newMemory(),
		purger: NewPurger(cfg, pool, outboxes, metrics, log),
		queues: map[int32]*queue{}, wake: make(chan struct{}, 1), idle: make(chan struct{}),
	}
	l.givenUp = make(chan struct{})
	l.giveUp = sync.OnceFunc(func() { close(l.givenUp) })
	close(l.idle)
	for _, o := range outboxes {
		l.queues[o.Index] = newQueue(o, cfg)
	}
	return l
}

// Mark takes events that the broker has acknowledged. It doesn't block.
func (l *Lifecycle) Mark(events []*event.Event) {
	outcomes := make([]outcome, len(events))
	for i, e := range events {
		outcomes[i] = outcome{event: e}
	}
	l.hand(outcomes...)
}

// Fail takes an event whose publishing failed, with an error of class Permanent (it dies of it) or any other (it is
// tried again, until its attempts are exhausted). It doesn't block.
func (l *Lifecycle) Fail(e *event.Event, err error) {
	o := outcome{event: e, err: err, text: errorText(err), attempts: int(e.Attempts) + 1}
	q := l.queues[e.ID.Table]
	if !q.Has(table.Attempts) {
		o.attempts = l.memory.attempts(e.ID) + 1
		o.dies = l.cfg.Retry.exhausted(o.attempts)
	}
	o.dies = o.dies || event.ClassOf(err) == event.Permanent
	o.pause = l.cfg.Retry.delay(o.attempts)
	l.hand(o)
}

// DueIn is how long a row must wait for its retry whose table has no next_attempt_at; not positive: it is due, or not
// known.
func (l *Lifecycle) DueIn(id event.RowID) time.Duration { return l.memory.dueIn(id) }

func (l *Lifecycle) hand(outcomes ...outcome) {
	if len(outcomes) == 0 {
		return
	}
	l.mu.Lock()
	if l.unsettled == 0 {
		l.idle = make(chan struct{})
	}
	l.unsettled += len(outcomes)
	l.inbox = append(l.inbox, outcomes...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// settle reports what is committed.
func (l *Lifecycle) settle(settled []event.Settled) {
	if len(settled) == 0 {
		return
	}
	for _, s := range settled {
		if s.State != event.Waiting {
			l.memory.forget(s.ID)
		}
	}
	l.onSettled(settled)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsettled -= len(settled); l.unsettled == 0 {
		close(l.idle)
	}
}

// Drain waits until everything that was handed in is written and reported. It needs Run to be running.
func (l *Lifecycle) Drain(ctx context.Context) error {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %d outcomes are not yet written: %w", l.Unsettled(), context.Cause(ctx))
	}
}

// Unsettled is the number of outcomes that were handed in and are not yet written.
func (l *Lifecycle) Unsettled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsettled
}

// GiveUp makes Run, when its context has ended, return without waiting any longer for what can't be written.
func (l *Lifecycle) GiveUp() { l.giveUp() }

// Run writes outcomes and purges until ctx ends. Then it writes what was handed in, for no longer than StopTimeout or until GiveUp, and
// returns nil. What is left is PENDING in the table and will be published again; it is logged.
func (l *Lifecycle) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		l.write(ctx, work)
		cancel()
		return nil
	})
	g.Go(func() error { return l.purger.Run(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		select {
		case <-work.Done():
		case <-time.After(l.cfg.StopTimeout):
			cancel()
		case <-l.givenUp:
			cancel()
		}
		return nil
	})
	err := g.Wait()
	if n := l.Unsettled(); n > 0 {
		l.log.Warn("stopped before all outcomes were written, what was published will be published again",
			"rows", n, "stop_timeout", l.cfg.StopTimeout)
	}
	return err
}
