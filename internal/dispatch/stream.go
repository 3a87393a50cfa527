package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// streamKind is what a message of the stream says.
type streamKind uint8

const (
	sEvent streamKind = iota
	sPassed
	sConnecting
	sStarted
	sLost
	sOverflowed
)

// streamMsg is one message from the replication goroutine, in its order.
type streamMsg struct {
	kind  streamKind
	event *event.Event
	lsn   pglogrepl.LSN
	err   error
	noted chan struct{}
}

// inbox is the way from the replication goroutine to the owner. It never blocks the stream: what does not fit is dropped,
// and the owner is told, so that the poll brings it.
type inbox struct {
	*mailbox[streamMsg]
	maxRows, maxBytes int64
	rows, bytes       atomic.Int64
	overflowed        bool // owned by the replication goroutine: the drop was told
}

func (in *inbox) offer(e *event.Event) {
	size := int64(e.Size())
	if in.rows.Load() >= in.maxRows || in.rows.Load() > 0 && in.bytes.Load()+size > in.maxBytes {
		if !in.overflowed {
			in.overflowed = true
			in.put(streamMsg{kind: sOverflowed})
		}
		return
	}
	in.overflowed = false
	in.rows.Add(1)
	in.bytes.Add(size)
	in.put(streamMsg{kind: sEvent, event: e})
}

// taken makes room for what the owner has taken out.
func (in *inbox) taken(e *event.Event) {
	in.rows.Add(-1)
	in.bytes.Add(-int64(e.Size()))
}

// Connecting tells that a start position is about to be read. It returns when that is noted, since from then on nothing
// that the stream may bring must be forgotten.
func (d *Dispatcher) Connecting() {
	noted := make(chan struct{})
	d.inbox.put(streamMsg{kind: sConnecting, noted: noted})
	select {
	case <-noted:
	case <-d.ended:
	}
}

// Started tells that the stream is on from start.
func (d *Dispatcher) Started(start pglogrepl.LSN) {
	d.inbox.put(streamMsg{kind: sStarted, lsn: start})
}

// Offer brings a committed PENDING row. It does not block; what does not fit stays PENDING.
func (d *Dispatcher) Offer(e *event.Event) { d.inbox.offer(e) }

// Passed tells that everything committed before pos has been offered.
func (d *Dispatcher) Passed(pos pglogrepl.LSN) {
	d.inbox.put(streamMsg{kind: sPassed, lsn: pos})
}

// Lost tells that the stream has ended.
func (d *Dispatcher) Lost(err error) { d.inbox.put(streamMsg{kind: sLost, err: err}) }

// Settled takes what lifecycle has committed in the table, from any goroutine.
func (d *Dispatcher) Settled(settled []event.Settled) { d.settled.put(settled...) }

// Wake asks for a pass now: something says that rows were committed.
func (d *Dispatcher) Wake() { d.woken.notify() }

// takeStream hands the machine what the stream brought.
func (d *Dispatcher) takeStream(m *machine) {
	for _, msg := range d.inbox.take() {
		switch msg.kind {
		case sEvent:
			d.inbox.taken(msg.event)
			d.metrics.received[event.WAL].Inc()
			m.streamEvent(msg.event)
		case sPassed:
			m.streamPassed(msg.lsn)
		case sConnecting:
			m.streamConnectingNow()
			close(msg.noted)
		case sStarted:
			m.streamStarted(msg.lsn)
		case sLost:
			m.streamLost("the stream is lost")
		case sOverflowed:
			m.streamOverflowed()
		}
	}
}

// passIdle is how long a pass may hold its snapshot without being read on: dispatch is full, or nobody wants the rest.
const passIdle = 2 * time.Second

// readTable answers the machine's reads one after another; ctx ends it.
func (d *Dispatcher) readTable(ctx context.Context) {
	defer d.table.EndPass(ctx)
	idle := time.NewTimer(passIdle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			d.table.EndPass(ctx)
		case r := <-d.reads:
			answer := d.readOnce(ctx, r)
			select {
			case d.answers <- answer:
			case <-ctx.Done():
				return
			}
			idle.Reset(passIdle)
		}
	}
}

// answer is what a read brought.
type answer struct {
	kind             readKind
	page             event.Page
	blocked          []*event.Event
	pending, settled []event.RowID
	err              error
}

func (d *Dispatcher) readOnce(ctx context.Context, r read) answer {
	a := answer{kind: r.kind}
	switch r.kind {
	case readBegin:
		a.blocked, a.err = d.table.BeginPass(ctx, r.whole)
	case readPage:
		a.page, a.err = d.table.NextPage(ctx)
	case readStates:
		a.pending, a.settled, a.err = d.table.States(ctx, r.ids)
	case readNothing:
		a.err = d.table.Nudge(ctx)
	}
	return a
}

// takeAnswer hands the machine what a read brought.
func (d *Dispatcher) takeAnswer(m *machine, a answer) {
	if a.err != nil {
		d.tableErrors.warn("read pending rows failed", a.err)
		m.readFailed()
		return
	}
	d.tableErrors.over()
	switch a.kind {
	case readBegin:
		m.passBegun(a.blocked)
	case readPage:
		d.metrics.received[event.Poll].Add(float64(m.pageRead(a.page)))
	case readStates:
		m.statesRead(a.pending, a.settled)
	case readNothing:
		m.nudged()
	}
}
