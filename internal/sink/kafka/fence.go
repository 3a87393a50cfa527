package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// errFenced is the error of everything that a fenced producer was still to write.
var errFenced = errors.New("the producer was fenced after an earlier failure")

// fence stands between one producer and its sockets. Once it is shut nothing more is written to a broker; answers to what
// was written before are still read. So after the first failure of a key, no later record of it gets out.
//
// sarama hands out the error of a batch before it lets the partition's next batch go, but it doesn't wait until the error
// was looked at. Therefore each write asks first: it is let through by the goroutine that takes the errors, between two
// of them. When that goroutine comes to answer, it has dealt with every error that was handed out before.
type fence struct {
	timeout time.Duration
	dialing context.Context
	cancel  context.CancelCauseFunc

	shut chan struct{} // closed when nothing more may be written
	pass chan struct{} // a write that asks; taken by the goroutine of the errors
	open chan struct{} // closed when that goroutine has ended

	mu      sync.Mutex
	cause   error // why it is shut
	guarded bool  // that goroutine has started
	conns   map[*fencedConn]struct{}
}

func newFence(timeout time.Duration) *fence {
	f := &fence{
		timeout: timeout, shut: make(chan struct{}), pass: make(chan struct{}), open: make(chan struct{}),
		conns: map[*fencedConn]struct{}{},
	}
	f.dialing, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// guard says that from now on writes ask. There is nothing to ask about while the producer is being made.
func (f *fence) guard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guarded = true
}

// close shuts the fence; only the first cause counts. It reports whether it was the first.
func (f *fence) close(cause error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cause != nil {
		return false
	}
	f.cause = cause
	close(f.shut)
	f.cancel(errFenced)
	return true
}

// sever shuts the fence and closes the sockets: whatever waits for an answer fails.
func (f *fence) sever(cause error) {
	f.close(cause)
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Conn.Close()
	}
}

func (f *fence) isShut() bool {
	select {
	case <-f.shut:
		return true
	default:
		return false
	}
}

// reason is why the fence is shut, nil while it isn't.
func (f *fence) reason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cause
}

// Dial implements proxy.Dialer, by which sarama connects.
func (f *fence) Dial(network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: f.timeout, KeepAlive: 30 * time.Second}
	conn, err := d.DialContext(f.dialing, network, addr)
	if err != nil {
		if f.isShut() {
			return nil, fencedError{}
		}
		return nil, err
	}
	c := &fencedConn{Conn: conn, fence: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cause != nil {
		_ = conn.Close()
		return nil, fencedError{}
	}
	f.conns[c] = struct{}{}
	return c, nil
}

// ask returns nil when the caller may write now.
func (f *fence) ask() error {
	f.mu.Lock()
	guarded := f.guarded
	f.mu.Unlock()
	if guarded {
		select {
		case f.pass <- struct{}{}:
		case <-f.open:
		case <-f.shut:
		}
	}
	if f.isShut() {
		return fencedError{}
	}
	return nil
}

// fencedConn is a socket behind the fence.
type fencedConn struct {
	net.Conn
	fence *fence
}

func (c *fencedConn) Write(b []byte) (int, error) {
	if err := c.fence.ask(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *fencedConn) Close() error {
	c.fence.mu.Lock()
	delete(c.fence.conns, c)
	c.fence.mu.Unlock()
	return c.Conn.Close()
}

// fencedError is errFenced in the form by which sarama knows a connection that is of no more use.
type fencedError struct{}

func (fencedError) Error() string   { return errFenced.Error() }
func (fencedError) Unwrap() error   { return errFenced }
func (fencedError) Timeout() bool   { return false }
func (fencedError) Temporary() bool { return false }
