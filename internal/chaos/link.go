package chaos

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A direction of a link holds at most depth pieces of pieceSize bytes; then it reads no more, and the sender notices.
const (
	pieceSize = 16 << 10
	depth     = 256
)

// link is one connection through a proxy.
type link struct {
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	client net.Conn
}

func newLink(client net.Conn) *link {
	l := &link{client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// reset makes run end soon.
func (l *link) reset() { l.cancel() }

// run passes bytes on both ways until both sides have ended theirs, one is broken, or the link is reset.
func (l *link) run(p *Proxy, target string) {
	defer l.cancel()
	var dialer net.Dialer
	server, err := dialer.DialContext(l.ctx, "tcp", target)
	if err != nil {
		abort(l.client)
		return
	}
	// An end in order must not overtake the last bytes, as a reset would.
	defer l.client.Close()
	defer server.Close()
	// Closing is what wakes the readers and writers below.
	stop := context.AfterFunc(l.ctx, func() {
		abort(l.client)
		abort(server)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { l.pass(p, ToServer, l.client, server) })
	both.Go(func() { l.pass(p, ToClient, server, l.client) })
	both.Wait()
}

// piece is what one read brought, and when.
type piece struct {
	data []byte
	came time.Time
}

// pass copies one direction. Reading and writing are apart, so that a delay postpones bytes without slowing their flow.
func (l *link) pass(p *Proxy, d Direction, from, to net.Conn) {
	pieces := make(chan piece, depth)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(pieces)
		l.read(from, pieces)
	})
	defer reader.Wait()
	for part := range pieces {
		if !l.write(p, d, part, to) {
			l.cancel()
			return
		}
	}
	if l.ctx.Err() != nil {
		return // to be reset, not ended in order
	}
	// The end of one direction is passed on; the other may go on.
	if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		l.cancel()
	}
}

func (l *link) read(from net.Conn, pieces chan<- piece) {
	for {
		buf := make([]byte, pieceSize)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case pieces <- piece{buf[:n], time.Now()}:
			case <-l.ctx.Done():
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.cancel() // a reset goes on as a reset
			}
			return
		}
	}
}

// write passes a piece on when and as fast as the proxy's faults allow, and looks at them again whenever they change. It
// reports whether the link is still good.
func (l *link) write(p *Proxy, d Direction, part piece, to net.Conn) bool {
	for len(part.data) > 0 {
		f, changed := p.now()
		f = f.in(d)
		if f.stalled&d != 0 {
			if !l.wait(nil, changed) {
				return false
			}
			continue
		}
		if left := time.Until(part.came.Add(f.delay)); f.delay > 0 && left > 0 {
			if !l.pause(left, changed) {
				return false
			}
			continue
		}
		n := len(part.data)
		if f.limit > 0 {
			n = min(n, max(1, f.limit/50)) // fifty small portions a second rather than a large one now and then
		}
		if _, err := to.Write(part.data[:n]); err != nil {
			return false
		}
		part.data = part.data[n:]
		if f.limit > 0 && !l.pause(time.Duration(n)*time.Second/time.Duration(f.limit), changed) {
			return false
		}
	}
	return true
}

func (l *link) pause(d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return l.wait(timer.C, changed)
}

// wait returns when the time has come or the faults have changed, false when the link has ended.
func (l *link) wait(due <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-due:
	case <-changed:
	case <-l.ctx.Done():
	}
	return l.ctx.Err() == nil
}

// abort closes a connection with a reset, and loses what is under way in it.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	_ = c.Close()
}
