package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Why a call ended, or an event has no place.
var (
	errClosed       = errors.New("the sink is closed")
	errPublishBound = errors.New("redis didn't answer within three times sink.redis.timeout")
	errProbeBound   = errors.New("redis wasn't reached within twice sink.redis.timeout")
	errNoTopic      = errors.New("the topic is empty: it would be a stream without a name")
)

// Options are what a Sink needs beside its configuration.
type Options struct {
	// Logger gets a line when Redis is lost and when it is back. nil: nobody.
	Logger *slog.Logger
}

// Sink implements sink.Sink for Redis Streams.
type Sink struct {
	config  Config
	place   place
	options *redis.UniversalOptions
	log     *slog.Logger
	written atomic.Pointer[string] // a stream that was written to
	noIDMP  atomic.Bool            // a server has refused it

	closing context.Context // ends with Close
	close   context.CancelCauseFunc

	mu      sync.Mutex // guards the rest
	running sync.WaitGroup
	link    *link              // the current one
	links   map[*link]struct{} // those that aren't closed
	down    error              // why nothing can be written until a Probe succeeds; nil: nothing is known to be wrong
	suspect string             // a stream that couldn't be written to when it went down
	closed  bool
}

// New checks the configuration, fills in its defaults and reads its files. It doesn't connect: the first Publish does, so
// that the relay may start before Redis.
func New(config Config, o Options) (*Sink, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	options, err := config.clientOptions()
	if err != nil {
		return nil, err
	}
	s := &Sink{config: config, options: options, log: o.Logger, links: map[*link]struct{}{}}
	s.place = config.place(func(string, string, ...any) {})
	s.config.TLS.Enabled = s.place.tls
	s.config.URL, s.config.SentinelPassword, s.place.password = "", "", "" // the options have them
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.link = s.connect()
	return s, nil
}

// Publish implements sink.Sink. In a Cluster an unavailable result may stand beside acknowledged ones.
func (s *Sink) Publish(ctx context.Context, events []*event.Event) []error {
	if len(events) == 0 {
		return nil
	}
	ctx, cancel := s.bounded(ctx, 3*s.config.Timeout+s.config.waitTimeout(), errPublishBound)
	defer cancel()
	p := newPublication(s, events)
	l, err := s.use()
	if err == nil {
		defer l.users.Done()
		if err = context.Cause(ctx); err == nil {
			err = p.run(ctx, l)
		}
	}
	if err != nil {
		p.abandon(err)
	}
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

// spawn runs f in a goroutine that Close waits for; false when it is too late for that.
func (s *Sink) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Go(f)
	return true
}

// await runs f, which may be in a socket for as long as its timeout, and returns when ctx has ended even so.
func (s *Sink) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !s.spawn(func() { done <- f() }) {
		return errClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect makes a link and keeps it until it is closed.
func (s *Sink) connect() *link {
	l := newLink(s.options)
	s.links[l] = struct{}{}
	return l
}

// another is a link of its own for somebody who drops it.
func (s *Sink) another() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return s.connect(), nil
}

// use is the current link, of which the caller is a user until users.Done; or why there is none.
func (s *Sink) use() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.down != nil:
		return nil, s.down
	}
	s.link.users.Add(1)
	return s.link, nil
}

// lost notes that nothing can be written, until a Probe succeeds. stream is one that couldn't be.
func (s *Sink) lost(cause error, stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil || s.closed {
		return
	}
	v := classify(cause)
	v.class = event.Unavailable
	s.down = v.wrap(s.config.explain(cause))
	s.suspect = strings.Clone(stream)
	s.log.Warn("redis is unavailable", "reason", v.reason, "error", s.down)
}

// found notes that Redis takes writes again, and goes on with a fresh link when it was lost. It says whether it took l.
func (s *Sink) found(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.down == nil {
		return false
	}
	old := s.link
	s.link, s.down = l, nil
	s.log.Info("redis is available again")
	s.running.Go(func() {
		old.users.Wait() // no longer than a Publish takes
		s.drop(old)
	})
	return true
}

// drop closes a link.
func (s *Sink) drop(l *link) {
	l.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// withoutIDMP gives up idempotent XADD for good, because a server has refused it.
func (s *Sink) withoutIDMP(cause error) {
	if !s.noIDMP.Swap(true) {
		s.log.Warn("redis refuses idempotent writes, going on without them", "error", cause)
	}
}

// Close ends all calls under way and closes the connections. It waits for that until ctx ends.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.close(errClosed)
	for l := range s.links {
		l.close() // ends what sits in a socket
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the redis sink: a call is still under way: %w", context.Cause(ctx))
	}
}
