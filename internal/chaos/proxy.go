package chaos

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// Direction says which way bytes go through a proxy.
type Direction uint8

// The directions, as seen by who connects to the proxy.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// faults are what a proxy does to its connections. The zero value passes everything at once.
type faults struct {
	stalled Direction
	delay   time.Duration
	limit   int       // bytes a second; 0: none
	slowed  Direction // where delay and limit hold; 0: both
}

// in are the faults of one direction.
func (f faults) in(d Direction) faults {
	if f.slowed != 0 && f.slowed&d == 0 {
		f.delay, f.limit = 0, 0
	}
	return f
}

// Proxy passes TCP connections on to a target, and misbehaves when told to. What it is told holds for the connections it
// has and for those to come. Its methods may be called from several goroutines.
type Proxy struct {
	place   *testbed.Place // keeps the port while nobody listens on it
	running sync.WaitGroup // of the accept loop and the links

	mu       sync.Mutex // guards the rest
	target   string
	listener net.Listener // nil while cut
	links    map[*link]struct{}
	faults   faults
	changed  chan struct{} // closed and replaced when faults change
	closed   bool
}

// NewProxy listens on a free port of 127.0.0.1 and passes connections on to target. The target is dialled for each
// connection, and need not be there yet.
func NewProxy(target string) (*Proxy, error) {
	place, err := testbed.Reserve()
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{place: place, target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	if err := p.Restore(); err != nil {
		return nil, errors.Join(err, place.Release())
	}
	return p, nil
}

// Addr is where clients connect to; it stays the same.
func (p *Proxy) Addr() string { return p.place.Addr() }

// SetTarget changes where connections to come are passed on to.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections is the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Cut resets all connections, losing what is under way in them, and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
	p.resetAll()
}

// Restore accepts connections again after Cut. The other faults stay as they are.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("the proxy is closed")
	}
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("accept connections again: %w", err)
	}
	p.listener = l
	p.running.Go(func() { p.accept(l) })
	return nil
}

// CloseAll resets all connections and goes on to accept new ones.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

// Stall passes no byte on in the direction, without closing anything: the peer seems to be silent. Nothing is lost; what
// was held back goes out after Resume.
func (p *Proxy) Stall(d Direction) { p.change(func(f *faults) { f.stalled |= d }) }

// Resume ends Stall, in both directions.
func (p *Proxy) Resume() { p.change(func(f *faults) { f.stalled = 0 }) }

// Delay passes every byte on d later than it came, in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.change(func(f *faults) { f.delay = d }) }

// Limit passes on at most so many bytes a second, in each direction of each connection; 0 ends it.
func (p *Proxy) Limit(bytesPerSecond int) {
	p.change(func(f *faults) { f.limit = max(0, bytesPerSecond) })
}

// Confine lets Delay and Limit hold in one direction only, until it is told Both.
func (p *Proxy) Confine(d Direction) { p.change(func(f *faults) { f.slowed = d }) }

// Close resets all connections, stops listening and waits until nothing of the proxy runs. Further calls do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.stopListening()
	p.resetAll()
	p.mu.Unlock()
	p.running.Wait()
	return p.place.Release()
}

func (p *Proxy) change(f func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

// now are the present faults, and a channel that is closed when they change.
func (p *Proxy) now() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close() // the only error is that it is closed
		p.listener = nil
	}
}

func (p *Proxy) resetAll() {
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.admit(listener, client)
	}
}

// admit starts a link for the client, unless the listener was closed while the client was being accepted.
func (p *Proxy) admit(listener net.Listener, client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		abort(client)
		return
	}
	l := newLink(client)
	p.links[l] = struct{}{}
	target := p.target
	p.running.Go(func() {
		l.run(p, target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}
