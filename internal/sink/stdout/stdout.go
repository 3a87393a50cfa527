package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// writeTimeout is how long a reader may leave a batch lying before the sink counts as unavailable.
const writeTimeout = 10 * time.Second

// maxIdleBuffer is the largest buffer kept for the next batch, in bytes.
const maxIdleBuffer = 1 << 20

var (
	errTimeout = errors.New("the reader took nothing for " + writeTimeout.String())
	errClosed  = errors.New("the sink is closed")
)

// Sink implements sink.Sink over an io.Writer.
type Sink struct {
	w       io.Writer
	writing sync.WaitGroup

	// token is held by who may touch the fields below it; a channel, so that waiting for it can be given up.
	token  chan struct{}
	buf    []byte
	torn   bool  // the last write ended within a line
	closed bool  // Close was called
	broken error // the reader is gone for good
}

// New returns a sink that writes to w. It doesn't close w.
func New(w io.Writer) *Sink {
	return &Sink{w: w, token: make(chan struct{}, 1)}
}

// Publish writes all events with one Write. When that fails, the events whose whole line was written are acknowledged and
// the rest is unavailable. When ctx ends first, the outcome of all is unknown and the write goes on in the background.
func (s *Sink) Publish(ctx context.Context, events []*event.Event) []error {
	results := make([]error, len(events))
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errTimeout)
	defer cancel()
	if err := s.take(ctx); err != nil {
		return fill(results, err)
	}
	ends := make([]int, len(events))
	s.encode(ends, events)
	done := make(chan struct{})
	s.writing.Go(func() {
		defer s.give()
		n, err := s.write()
		for i := range results {
			if err != nil && n < ends[i] {
				results[i] = unavailable(err)
			}
		}
		close(done)
	})
	select {
	case <-done:
		return results
	case <-ctx.Done():
		// results belongs to the writing goroutine now.
		return fill(make([]error, len(events)), context.Cause(ctx))
	}
}

// encode fills the buffer and notes where in it each event's line ends.
func (s *Sink) encode(ends []int, events []*event.Event) {
	s.buf = s.buf[:0]
	if s.torn {
		s.buf = append(s.buf, '\n')
	}
	for i, e := range events {
		s.buf = appendLine(s.buf, e)
		ends[i] = len(s.buf)
	}
}

// write writes the buffer and returns how much of it was taken.
func (s *Sink) write() (int, error) {
	n, err := s.w.Write(s.buf)
	if err == nil && n < len(s.buf) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		s.torn = s.buf[n-1] != '\n'
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		s.broken = err // a pipe doesn't come back
	}
	if cap(s.buf) > maxIdleBuffer {
		s.buf = nil
	}
	return n, err
}

// Probe fails while a write is stuck, and for ever once the reader is gone.
func (s *Sink) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errTimeout)
	defer cancel()
	if err := s.take(ctx); err != nil {
		return unavailable(err)
	}
	s.give()
	return nil
}

// Check says where the events go.
func (s *Sink) Check(ctx context.Context, _ []string) []preflight.Finding {
	if err := s.Probe(ctx); err != nil {
		return []preflight.Finding{{Severity: preflight.Failure, Subject: "sink stdout", Detail: err.Error(),
			Remedy: "start the reader of the pipe again, and cdc-relay with it"}}
	}
	return []preflight.Finding{{Severity: preflight.OK, Subject: "sink stdout", Detail: "Events are written to standard output, one JSON object a line."}}
}

// Close waits for the write under way.
func (s *Sink) Close(ctx context.Context) error {
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("close the sink: a write is still under way: %w", context.Cause(ctx))
	}
	s.closed = true
	s.buf = nil
	s.give()
	s.writing.Wait() // the goroutine that gave the token back is about to end
	return nil
}

// take waits for the token, until ctx ends; it fails, without the token, when nothing can be written any more.
func (s *Sink) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.broken
	if s.closed {
		err = errClosed
	}
	if err != nil {
		s.give()
	}
	return err
}

func (s *Sink) give() { <-s.token }

func fill(results []error, cause error) []error {
	err := unavailable(cause)
	for i := range results {
		results[i] = err
	}
	return results
}

func unavailable(cause error) error {
	return &event.Error{Class: event.Unavailable, Reason: "not_written", Err: fmt.Errorf("write to standard output: %w", cause)}
}
