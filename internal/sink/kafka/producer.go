package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// producer is one of sarama's producers with a client of its own, used until its fence is shut.
type producer struct {
	fence  *fence
	client sarama.Client
	async  sarama.AsyncProducer
	topics topics

	// ordered: a failure shuts the fence when later events of its key are under way.
	ordered bool
	// fenced is told once that the fence was shut because of err.
	fenced func(err error)

	feeding sync.RWMutex // held for reading by who sends into async; retire waits for them
	drains  sync.WaitGroup
}

// connect makes sarama's client behind a fence of its own. It does no I/O.
func (c *Config) connect(base *sarama.Config) (*fence, sarama.Client, error) {
	f := newFence(c.Timeout)
	config := *base
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, f
	pause := func(n, _ int) time.Duration {
		if f.isShut() {
			return 0 // what is left only has to fail
		}
		return backoff(n)
	}
	config.Producer.Retry.BackoffFunc = pause
	config.Metadata.Retry.BackoffFunc = func(n, most int) time.Duration { return pause(n+1, most) } // 100 ms, 200 ms
	config.Producer.Transaction.Retry.BackoffFunc = pause
	client, err := sarama.NewClient(c.Brokers, &config)
	if err != nil {
		f.sever(errFenced)
		return nil, nil, err
	}
	return f, client, nil
}

// newProducer makes a producer whose client knows the brokers and, if it exists, the topic. It ends with ctx.
func (s *Sink) newProducer(ctx context.Context, topic string, maxMessageBytes int, ordered bool, fenced func(error)) (*producer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.config.Timeout, errConnectTimeout)
	defer cancel()
	base := *s.base
	base.Producer.MaxMessageBytes = maxMessageBytes
	f, client, err := s.config.connect(&base)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { f.sever(context.Cause(ctx)) })
	p := &producer{fence: f, client: client, ordered: ordered, fenced: fenced}
	// Asking for a topic tries every bootstrap broker. Making a producer wouldn't: it takes the first.
	if err = client.RefreshMetadata(topic); err == nil || classify(err).scope != ofCluster {
		p.async, err = sarama.NewAsyncProducerFromClient(client)
	}
	if !stop() && err == nil { // ctx ended: the fence is shut
		err = context.Cause(ctx)
		p.run()
		p.retire(0)
		return nil, err
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		f.sever(errFenced)
		_ = client.Close()
		return nil, err
	}
	p.run()
	return p, nil
}

// run starts the two goroutines that bring back the answers.
func (p *producer) run() {
	p.fence.guard()
	p.drains.Go(func() {
		for m := range p.async.Successes() {
			m.Metadata.(*outgoing).answer(nil)
		}
	})
	p.drains.Go(func() {
		defer close(p.fence.open)
		errs := p.async.Errors()
		for {
			select {
			case e, ok := <-errs:
				if !ok {
					return
				}
				p.failed(e.Msg.Metadata.(*outgoing), e.Err)
			case <-p.fence.pass:
			}
		}
	})
}

// failed notes a message's failure and shuts the fence where going on would break an order or be in vain.
func (p *producer) failed(o *outgoing, err error) {
	moreOfKey := o.answer(err)
	v := classify(err)
	if v.scope == ofCluster || v.scope == ofProducer || moreOfKey && p.ordered {
		p.shut(err)
	}
}

// shut shuts the fence.
func (p *producer) shut(err error) {
	if p.fence.close(err) {
		p.fenced(err)
	}
}

// send hands the round's messages to sarama, in order, until the fence is shut or ctx ends.
func (p *producer) send(ctx context.Context, r *round) {
	p.feeding.RLock()
	defer p.feeding.RUnlock()
	for i := range r.out {
		if p.fence.isShut() {
			break
		}
		m := &r.out[i].ProducerMessage
		r.count()
		select {
		case p.async.Input() <- m:
			continue
		case <-p.fence.shut:
		case <-ctx.Done():
		}
		r.seal(1)
		return
	}
	r.seal(0)
}

// retire closes the producer, whose fence is shut. What was written is still answered, for as long as patience lasts; then the sockets are
// closed.
func (p *producer) retire(patience time.Duration) {
	p.feeding.Lock()   // nobody sends into a producer that is being closed
	p.feeding.Unlock() //nolint:staticcheck // and nobody begins to any more
	timer := time.AfterFunc(patience, func() { p.fence.sever(errFenced) })
	p.async.AsyncClose()
	p.drains.Wait()
	p.fence.sever(errFenced) // ends the looks for topics
	p.topics.looking.Wait()
	_ = p.client.Close()
	timer.Stop()
}

// alone sends one message and waits for its answer.
func (p *producer) alone(ctx context.Context, e *event.Event) error {
	r := newRound([]*event.Event{e}, []int{0})
	p.send(ctx, r)
	return p.wait(ctx, r)[0]
}

// wait waits until all that was sent is answered, or ctx ends, and returns an error for each message of the round:
// errFenced for what was not sent, ctx's for what wasn't answered.
func (p *producer) wait(ctx context.Context, r *round) []error {
	select {
	case <-r.done:
	case <-ctx.Done():
		r.leave()
	}
	errs := make([]error, len(r.out))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.out {
		switch o := &r.out[i]; {
		case o.answered:
			errs[i] = o.err
		case i >= r.sent && ctx.Err() == nil:
			errs[i] = errFenced
		default:
			errs[i] = context.Cause(ctx)
		}
	}
	return errs
}

// givenUp is why ctx ended. When that is because the brokers are silent, nothing more goes through this producer.
func (p *producer) givenUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errPublishBound) {
		p.shut(cause)
	}
	return cause
}
