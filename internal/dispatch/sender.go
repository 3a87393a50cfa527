package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// laneResult is the outcome of a lane's batch.
type laneResult struct {
	lane  int
	errs  []error
	acked bool  // one of the events was
	away  error // why the sink is away, if it is
}

// sendLane publishes the batches of one lane, one at a time.
func (d *Dispatcher) sendLane(ctx context.Context, n int, batches <-chan []item) {
	s := sender{Dispatcher: d, topics: map[string]*topicCounters{}}
	for batch := range batches {
		r := laneResult{lane: n, errs: s.publish(ctx, batch)}
		for _, err := range r.errs {
			switch class := event.ClassOf(err); {
			case err == nil:
				r.acked = true
			case class == event.Unavailable, class == event.NotAttempted && r.away == nil:
				r.away = err
			}
		}
		d.done <- r // never blocks: it has room for one result of each lane
	}
}

// sender is what one lane owns.
type sender struct {
	*Dispatcher
	topics map[string]*topicCounters
	events []*event.Event
	at     []int
}

// publish sends what can be sent of a batch and returns one error an event.
func (s *sender) publish(ctx context.Context, batch []item) []error {
	errs := make([]error, len(batch))
	s.events, s.at = s.events[:0], s.at[:0]
	for i, it := range batch {
		if it.Invalid != nil {
			errs[i] = &event.Error{Class: event.Permanent, Reason: "invalid_row", Err: it.Invalid}
			continue
		}
		s.events, s.at = append(s.events, it.Event), append(s.at, i)
	}
	if len(s.events) > 0 {
		began := time.Now()
		var results []error
		if err := s.cfg.MayPublish(); err != nil {
			results = fill(len(s.events), &event.Error{Class: event.Unavailable, Reason: "not_the_leader", Err: err})
		} else {
			results = s.sink.Publish(ctx, s.events)
			s.metrics.publish.Observe(time.Since(began).Seconds())
		}
		if len(results) != len(s.events) {
			results = fill(len(s.events), errors.New("the sink answered for another number of events than it was given"))
		}
		for j, err := range results {
			errs[s.at[j]] = err
		}
	}
	s.count(batch, errs)
	return errs
}

func fill(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// count observes the outcomes.
func (s *sender) count(batch []item, errs []error) {
	now := time.Now()
	acked := 0
	for i, it := range batch {
		if errs[i] != nil {
			s.metrics.failures[event.ClassOf(errs[i])].Inc()
			continue
		}
		acked++
		c := s.topics[it.Topic]
		if c == nil {
			if len(s.topics) > 4096 {
				clear(s.topics)
			}
			c = s.metrics.topic(it.Topic)
			s.topics[it.Topic] = c
		}
		c[it.Path].Inc()
		s.metrics.latency[it.Path].Observe((it.Lag + now.Sub(it.ReceivedAt)).Seconds())
	}
	s.metrics.acked.Add(int64(acked))
}

// contact asks the sink once, at the start: without a row to deliver nobody else would notice that it is not there.
func (d *Dispatcher) contact(ctx context.Context) error {
	pctx, cancel := context.WithTimeout(ctx, d.cfg.ProbeTimeout)
	defer cancel()
	if err := d.sink.Probe(pctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// probe asks the sink, after a pause and then at a growing one, until it answers.
func (d *Dispatcher) probe(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return
	}
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = d.cfg.ProbeInitial, d.cfg.ProbeMax, 2
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if err := d.cfg.MayPublish(); err != nil {
			return struct{}{}, err
		}
		pctx, cancel := context.WithTimeout(ctx, d.cfg.ProbeTimeout)
		defer cancel()
		return struct{}{}, d.sink.Probe(pctx)
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, pause time.Duration) {
		d.sinkErrors.warn("sink is not available", err)
	}))
	if err == nil {
		d.probed <- struct{}{} // has room: one probe at a time
	}
}
