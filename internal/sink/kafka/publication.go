package kafka

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// maxRenewals is how many producers one call may outlive without an outage, before it says that nothing can be sent.
const maxRenewals = 5

// state is where an event of a publication stands.
type state uint8

const (
	waiting state = iota // to be sent with others
	single               // to be sent alone
	settled              // its result is known
)

// publication is one call of Publish. It plans what may be sent now, sends it, judges the answers, and plans again, until
// every event has its result.
type publication struct {
	sink    *Sink
	events  []*event.Event
	results []error
	states  []state

	// blocked are the keys of which an event failed and is to be tried again later, with the result of those behind it.
	blocked  map[keyID]error
	special  bool // some event is single, or some key blocked
	failures bool // some result is not nil
	renewals int
}

func newPublication(s *Sink, events []*event.Event) *publication {
	p := &publication{sink: s, events: events, results: make([]error, len(events)), states: make([]state, len(events))}
	for i, e := range events {
		switch size := messageSize(e); {
		case !validTopic(e.Topic):
			p.settle(i, &event.Error{Class: event.Permanent, Reason: "invalid_topic",
				Err: fmt.Errorf("%.260q can't be the name of a topic", e.Topic)})
		case size > s.config.MaxMessageBytes:
			p.settle(i, &event.Error{Class: event.Permanent, Reason: "message_too_large",
				Err: fmt.Errorf("%d bytes are more than sink.kafka.max_message_bytes (%d)", size, s.config.MaxMessageBytes)})
		case size > s.base.Producer.MaxMessageBytes:
			p.states[i], p.special = single, true
		}
	}
	return p
}

// run fills in all results.
func (p *publication) run(ctx context.Context) {
	for {
		together, alone := p.plan()
		if len(together)+len(alone) == 0 {
			break
		}
		if err := p.step(ctx, together, alone); err != nil {
			p.abandon(err)
			break
		}
	}
	if p.failures {
		p.normalize()
	}
}

// plan says which events may be sent now: together, and alone one after the other. Of a key, that is everything up to its
// first event that must go alone, or that one.
func (p *publication) plan() (together, alone []int) {
	var held, sending map[keyID]bool // keys whose further events have to wait, and those that have one together
	if p.special {
		held, sending = map[keyID]bool{}, map[keyID]bool{}
	} else {
		together = make([]int, 0, len(p.events))
	}
	for i, e := range p.events {
		if p.states[i] == settled {
			continue
		}
		if !p.special || !e.HasKey {
			if p.states[i] == single {
				alone = append(alone, i)
			} else {
				together = append(together, i)
			}
			continue
		}
		key := keyOfEvent(e)
		if behind := p.blocked[key]; behind != nil {
			p.settle(i, behind)
			continue
		}
		switch {
		case held[key]:
		case p.states[i] == single:
			held[key] = true
			if !sending[key] {
				alone = append(alone, i)
			}
		default:
			sending[key] = true
			together = append(together, i)
		}
	}
	return together, alone
}

// step sends and judges. Its error ends the publication.
func (p *publication) step(ctx context.Context, together, alone []int) error {
	if len(together) > 0 {
		if err := p.batch(ctx, together); err != nil {
			return err
		}
	}
	for _, i := range alone {
		if err := p.alone(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// batch sends events together.
func (p *publication) batch(ctx context.Context, indexes []int) error {
	producer, err := p.sink.take(ctx, &p.sink.main, p.events[indexes[0]].Topic)
	if err != nil {
		return err
	}
	if indexes, err = p.withTopic(ctx, producer, indexes); err != nil || len(indexes) == 0 {
		return err
	}
	r := newRound(p.events, indexes)
	producer.send(ctx, r)
	errs := producer.wait(ctx, r)
	var again error
	for pos, i := range indexes {
		if errs[pos] == nil {
			p.settle(i, nil)
			continue
		}
		if unsent := p.judge(i, errs[pos], producer); unsent != nil {
			again = unsent
		}
	}
	if again == nil {
		return nil
	}
	if ctx.Err() != nil {
		return producer.givenUp(ctx)
	}
	if down := producer.fence.reason(); down != nil && classify(down).scope == ofCluster {
		return down
	}
	if p.renewals++; p.renewals > maxRenewals {
		return again
	}
	return nil
}

// judge settles an event that failed in a batch, or leaves it to be sent again: alone when it may have been refused for
// another's fault, and with the next producer when this one didn't send it. Then it returns err.
func (p *publication) judge(i int, err error, from *producer) error {
	v := classify(err)
	switch {
	case v.scope == ofProducer || v.scope == ofCluster:
		return err
	case v.scope == ofMessage && v.class == event.Permanent:
		p.states[i], p.special = single, true
		return nil
	}
	p.conclude(i, v, err, from)
	return nil
}

// conclude settles an event with a failure that is its own, its topic's or its partition's.
func (p *publication) conclude(i int, v verdict, err error, from *producer) {
	if v.scope == ofTopic {
		from.topics.forget(p.events[i].Topic)
	}
	result := v.wrap(err)
	p.settle(i, result)
	switch v.class {
	case event.Retryable:
		p.block(p.events[i], event.ErrNotAttempted)
	case event.Unavailable:
		p.block(p.events[i], result)
	}
}

// withTopic leaves the events whose topic can be written to.
func (p *publication) withTopic(ctx context.Context, producer *producer, indexes []int) ([]int, error) {
	var last string
	var lastErr error
	for _, i := range indexes {
		if topic := p.events[i].Topic; topic != last { // all at once
			last = topic
			producer.topics.look(producer.client, topic)
		}
	}
	last = ""
	ready := indexes[:0]
	for _, i := range indexes {
		if topic := p.events[i].Topic; topic != last {
			last, lastErr = topic, producer.topics.ready(ctx, producer.client, topic)
		}
		if lastErr == nil && !p.isBlocked(p.events[i]) {
			ready = append(ready, i)
			continue
		}
		if lastErr == nil {
			continue // plan settles it
		}
		v := classify(lastErr)
		if v.scope == ofCluster || v.scope == ofProducer {
			if ctx.Err() == nil {
				producer.shut(lastErr)
			}
			return nil, lastErr
		}
		if !p.isBlocked(p.events[i]) {
			p.conclude(i, v, lastErr, producer)
		}
	}
	return ready, nil
}

// alone sends one event by the producer that has one message under way at a time, so that its failure is its own.
func (p *publication) alone(ctx context.Context, i int) error {
	s, e := p.sink, p.events[i]
	select {
	case s.single.token <- struct{}{}:
		defer func() { <-s.single.token }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for renewals := 0; ; renewals++ {
		producer, err := s.renew(ctx, &s.single, e.Topic)
		if err != nil {
			return err
		}
		if err = producer.topics.ready(ctx, producer.client, e.Topic); err == nil {
			err = producer.alone(ctx, e)
		}
		if err == nil {
			p.settle(i, nil)
			return nil
		}
		v := classify(err)
		switch {
		case ctx.Err() != nil:
			return producer.givenUp(ctx)
		case v.scope == ofCluster, v.scope == ofProducer && renewals == maxRenewals:
			return err
		case v.scope == ofProducer:
			producer.shut(err)
		default:
			p.conclude(i, v, err, producer)
			return nil
		}
	}
}

// settle gives an event its result.
func (p *publication) settle(i int, result error) {
	p.states[i], p.results[i] = settled, result
	p.failures = p.failures || result != nil
}

// block holds back the further events of e's key; behind is their result.
func (p *publication) block(e *event.Event, behind error) {
	if !p.sink.config.Ordered || !e.HasKey {
		return
	}
	if p.blocked == nil {
		p.blocked = map[keyID]error{}
	}
	if key := keyOfEvent(e); p.blocked[key] == nil {
		p.blocked[key], p.special = behind, true
	}
}

func (p *publication) isBlocked(e *event.Event) bool {
	return len(p.blocked) > 0 && e.HasKey && p.blocked[keyOfEvent(e)] != nil
}

// abandon gives all events without a result the error that ended the publication.
func (p *publication) abandon(err error) {
	v := classify(err)
	v.class = event.Unavailable // whatever it is, it isn't about the event
	result := v.wrap(err)
	for i := range p.events {
		if p.states[i] != settled {
			p.settle(i, result)
		}
	}
}

// normalize makes the first failure of a key speak for the later ones, and counts the events that were acknowledged
// behind one.
func (p *publication) normalize() {
	if !p.sink.config.Ordered {
		return
	}
	behind := map[keyID]error{}
	inversions := 0
	for i, e := range p.events {
		if !e.HasKey {
			continue
		}
		key, result := keyOfEvent(e), p.results[i]
		switch first := behind[key]; {
		case first != nil && result == nil:
			inversions++
		case first != nil:
			p.results[i] = first
		case result != nil && event.ClassOf(result) == event.Retryable:
			behind[key] = event.ErrNotAttempted
		case result != nil && event.ClassOf(result) == event.Unavailable:
			behind[key] = result
		}
	}
	if inversions > 0 && p.sink.inversions != nil {
		p.sink.inversions(inversions)
	}
}

func keyOfEvent(e *event.Event) keyID { return keyID{e.ID.Table, e.Key} }
