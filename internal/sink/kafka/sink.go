package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Why a call ended.
var (
	errClosed         = errors.New("the sink is closed")
	errPublishBound   = errors.New("the brokers didn't answer within three times sink.kafka.timeout")
	errConnectTimeout = errors.New("the brokers weren't reached within twice sink.kafka.timeout")
)

// Options are what a Sink needs beside its configuration.
type Options struct {
	// Logger gets a line when the brokers are lost and when they are back. nil: nobody.
	Logger *slog.Logger
	// Inversions is told how many events were acknowledged although an earlier one of their key, in the same call, failed
	// retryably. It can happen only when a key changes its topic, or its partition. nil: nobody.
	Inversions func(n int)
}

// Sink implements sink.Sink for Kafka.
type Sink struct {
	config     Config
	base       *sarama.Config
	log        *slog.Logger
	inversions func(n int)

	// main sends batches, single sends one message at a time: what is large, or was refused together with others.
	main, single line

	closing context.Context // ends with Close
	close   context.CancelCauseFunc
	retired sync.WaitGroup // producers that are being closed

	mu     sync.Mutex
	down   error // why nothing can be sent until a Probe succeeds; nil: nothing is known to be wrong
	closed bool
	topic  string // one that was published to
}

// line is the current producer for one way of sending.
type line struct {
	token    chan struct{} // held by who makes a producer, or (single) uses it
	producer *producer     // guarded by Sink.mu
}

// New checks the configuration, fills in its defaults and reads its files. It doesn't connect: the first Publish does, so
// that the relay may start before the brokers.
func New(config Config, o Options) (*Sink, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	base, err := config.clientConfig()
	if err != nil {
		return nil, err
	}
	config.SASL.Password = ""
	s := &Sink{config: config, base: base, log: o.Logger, inversions: o.Inversions}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.main.token, s.single.token = make(chan struct{}, 1), make(chan struct{}, 1)
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Publish implements sink.Sink. An unavailable result of one partition (no leader, too few replicas) may stand beside
// acknowledged ones.
func (s *Sink) Publish(ctx context.Context, events []*event.Event) []error {
	if len(events) == 0 {
		return nil
	}
	ctx, cancel := s.bounded(ctx, 3*s.config.Timeout, errPublishBound)
	defer cancel()
	p := newPublication(s, events)
	p.run(ctx)
	return p.results
}

// bounded is ctx, ended by Close and after limit too.
func (s *Sink) bounded(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancelCause(context.Cause(s.closing)) })
	ctx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	return ctx, func() {
		cancel()
		stop()
		cancelCause(nil)
	}
}

// take returns the line's producer, and makes one when there is none or its fence is shut. It fails when the brokers are
// known to be down.
func (s *Sink) take(ctx context.Context, l *line, topic string) (*producer, error) {
	if p, err := s.current(l); p != nil || err != nil {
		return p, err
	}
	select {
	case l.token <- struct{}{}:
		defer func() { <-l.token }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.renew(ctx, l, topic)
}

// renew is take for who holds the token.
func (s *Sink) renew(ctx context.Context, l *line, topic string) (*producer, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	s.retired.Add(1) // Close waits for what is made here
	s.mu.Unlock()
	defer s.retired.Done()
	if p, err := s.current(l); p != nil || err != nil {
		return p, err
	}
	limit, ordered := s.base.Producer.MaxMessageBytes, s.config.Ordered
	if l == &s.single {
		limit, ordered = s.config.MaxMessageBytes, false // one at a time, so that nothing can be overtaken
	}
	p, err := s.newProducer(ctx, topic, limit, ordered, func(cause error) { s.fenced(l, cause) })
	if err != nil {
		err = s.config.explain(err)
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), errPublishBound) {
			s.lost(err)
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topic = topic
	if s.closed {
		s.retire(p, errClosed)
		return nil, errClosed
	}
	l.producer = p
	return p, nil
}

// current is the line's producer if it can be used, or why none may be made.
func (s *Sink) current(l *line) (*producer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.down != nil:
		return nil, s.down
	case l.producer != nil && l.producer.fence.isShut():
		s.retire(l.producer, l.producer.fence.reason())
		l.producer = nil
	}
	return l.producer, nil
}

// fenced is told by a producer of the line that its fence is shut.
func (s *Sink) fenced(l *line, cause error) {
	if v := classify(cause); v.scope == ofCluster {
		s.lost(s.config.explain(cause))
	} else {
		s.log.Debug("kafka gets another producer", "reason", v.reason, "error", cause)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.producer != nil && l.producer.fence.isShut() && !s.closed {
		s.retire(l.producer, cause)
		l.producer = nil
	}
}

// retire closes a producer in the background; Close waits for that. The caller holds mu.
func (s *Sink) retire(p *producer, cause error) {
	patience := s.config.Timeout
	if s.closed {
		patience = 0
	}
	p.fence.close(cause)
	s.retired.Go(func() { p.retire(patience) })
}

// lost notes that the brokers can't be reached, until a Probe succeeds.
func (s *Sink) lost(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil || s.closed {
		return
	}
	s.down = cause
	s.log.Warn("kafka is unavailable", "reason", classify(cause).reason, "error", s.down)
	for _, l := range []*line{&s.main, &s.single} {
		if l.producer != nil { // the other one's connections are no better
			s.retire(l.producer, cause)
			l.producer = nil
		}
	}
}

// Close ends all calls under way, and closes the producers. It waits for that until ctx ends.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.close(errClosed)
		for _, l := range []*line{&s.main, &s.single} {
			if l.producer != nil {
				s.retire(l.producer, errClosed)
				l.producer = nil
			}
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.retired.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the kafka sink: a producer is still being closed: %w", context.Cause(ctx))
	}
}
