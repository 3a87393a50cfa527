package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/fallbackpoll"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

// term is one time of being active: all parts, made anew.
type term struct {
	*Relay
	lease *lease
	began time.Time

	dispatch *dispatch.Dispatcher
	life     *lifecycle.Lifecycle
	stream   *replication.Stream // nil when switched off
}

// maxWriting bounds the part of the stop timeout that is kept for writing outcomes down.
const maxWriting = 3 * time.Second

func (r *Relay) newTerm(l *lease) *term {
	t := &term{Relay: r, lease: l, began: time.Now()}
	// Of the time for a stop the end is lifecycle's: dispatch has waited for it already, and when the lease was lost, what it
	// can't write soon another instance will send again.
	writing := min(r.cfg.StopTimeout/5, maxWriting)
	life := r.cfg.Lifecycle
	life.StopTimeout = writing
	t.life = lifecycle.New(life, r.pool, r.outboxes, func(s []event.Settled) { t.dispatch.Settled(s) }, r.metrics.Lifecycle, r.log, r.alerter)
	poll := r.cfg.Poll
	poll.BlockOnDead, poll.DueIn = r.cfg.Dispatch.BlockOnDead, t.life.DueIn
	poller := fallbackpoll.New(poll, r.pool, r.outboxes, r.metrics.Poll, r.log)
	cfg := r.cfg.Dispatch
	cfg.MayPublish = l.valid
	cfg.StopTimeout = r.cfg.StopTimeout - writing
	if r.cfg.Stream {
		cfg.AskPosition = func() { t.stream.RequestPosition() }
	}
	t.dispatch = dispatch.New(cfg, r.sink, poller, t.life, r.metrics.Dispatch, r.log)
	if r.cfg.Stream {
		t.stream = replication.New(r.cfg.Replication, r.outboxes, t.dispatch, r.metrics.Replication, r.log)
	}
	return t
}

// windUp is how long outcomes are written down after the lock was lost. That spares duplicates, but the next term, perhaps
// on another server, must not wait for rows that are not there.
const windUp = 2 * time.Second

// run starts the parts from the end of an event's way to its beginning, and stops them from the beginning to the end, so
// that each finds the next one running.
func (t *term) run(ctx context.Context) error {
	// A lost lease ends the term like a request to stop, but without waiting: nothing may be published any more.
	lost, lose := context.WithCancelCause(context.Background())
	defer lose(nil)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	part := func(run func(ctx context.Context) error) *part { return start(run, func() { cancel() }) }

	life := part(t.life.Run)
	disp := part(func(ctx context.Context) error { return t.dispatch.Run(ctx, lost) })
	stream := part(func(ctx context.Context) error {
		if t.stream == nil {
			<-ctx.Done()
			return nil
		}
		return t.stream.Run(ctx)
	})
	keeper := part(func(ctx context.Context) error {
		err := t.lease.keep(ctx, t.log)
		if err != nil {
			t.metrics.leader.Set(0) // what is left to do is to write outcomes down
			lose(err)
		}
		return err
	})

	select {
	case <-stop.Done():
	case <-lost.Done():
	}
	if lost.Err() != nil {
		giveUp := time.AfterFunc(windUp, t.life.GiveUp)
		defer giveUp.Stop()
	}
	disp.cancel()              // nothing new is taken
	errStream := stream.stop() // the slot is free
	errDisp := disp.stop()     // what is in flight is sent and handed to lifecycle
	errLife := life.stop()     // outcomes are written down
	errKeep := keeper.stop()   // only now may another instance begin
	if errKeep != nil && ctx.Err() == nil {
		return errKeep // what the loss of the lease leaves unsettled is its consequence
	}
	return errors.Join(errKeep, errDisp, errStream, errLife)
}

// part is a component that runs until it is stopped.
type part struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	err    error
}

// start runs a component; failed is called when it ends with an error.
func start(run func(ctx context.Context) error, failed func()) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{cancel: cancel}
	p.wg.Go(func() {
		if p.err = run(ctx); p.err != nil {
			failed()
		}
	})
	return p
}

// stop ends the component and waits for it.
func (p *part) stop() error {
	p.cancel()
	p.wg.Wait()
	return p.err
}
