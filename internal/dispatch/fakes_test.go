package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// outbox is a table with its stream and its lifecycle, in memory.
type outbox struct {
	mu sync.Mutex
	d  *Dispatcher

	rows      []*orow // PENDING ones, by id
	byID      map[int64]*orow
	lastID    int64
	wal       pglogrepl.LSN
	streaming bool
	bound     int64 // of the pass under way
	cursor    int64

	dead     []int64
	failures map[int64][]error
	marks    int
	nudges   int
	begins   []time.Time // of passes

	// Settings; change them by set.
	page    int
	slow    time.Duration // from the snapshot of a read to its answer
	settle  time.Duration // until an outcome is committed; negative: never
	retry   time.Duration
	tries   int
	broken  error // what reads answer
	blind   bool  // the stream brings nothing
	blocked []*event.Event
}

type orow struct {
	event.Event
	due time.Time
}

func newOutbox() *outbox {
	return &outbox{byID: map[int64]*orow{}, failures: map[int64][]error{}, page: 1000, retry: 100 * time.Millisecond, tries: 10}
}

func (o *outbox) set(change func(o *outbox)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// connect starts the stream.
func (o *outbox) connect() {
	o.d.Connecting()
	o.set(func(o *outbox) {
		o.streaming = true
		o.d.Started(o.wal)
	})
}

// lose ends it.
func (o *outbox) lose() {
	o.set(func(o *outbox) {
		o.streaming = false
		o.d.Lost(errors.New("connection reset"))
	})
}

// insert commits one transaction.
func (o *outbox) insert(events ...*event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range events {
		o.lastID++
		r := &orow{Event: *e}
		r.ID = event.IntID(0, o.lastID)
		r.due = time.Now().Add(e.DueIn)
		o.rows = append(o.rows, r)
		o.byID[o.lastID] = r
		if o.streaming && !o.blind {
			o.d.Offer(r.seen(event.WAL))
		}
	}
	o.wal += 10
	if o.streaming {
		o.d.Passed(o.wal)
	}
}

// position has the server say where it is.
func (o *outbox) position() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streaming {
		o.d.Passed(o.wal)
	}
}

// seen is the row as a path brings it.
func (r *orow) seen(p event.Path) *event.Event {
	e := r.Event
	e.Path, e.ReceivedAt, e.DueIn, e.Returned = p, time.Now(), time.Until(r.due), e.Attempts > 0
	return &e
}

func (o *outbox) pending() (ids []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rows {
		ids = append(ids, r.ID.Int())
	}
	return ids
}

// answer lets the time of a read pass.
func (o *outbox) answer(ctx context.Context) error {
	select {
	case <-time.After(o.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.broken
}

func (o *outbox) BeginPass(ctx context.Context, _ bool) ([]*event.Event, error) {
	o.mu.Lock()
	o.begins = append(o.begins, time.Now())
	o.cursor, o.bound = 0, o.lastID
	blocked := o.blocked
	o.mu.Unlock()
	return blocked, o.answer(ctx)
}

func (o *outbox) NextPage(ctx context.Context) (event.Page, error) {
	o.mu.Lock()
	p := event.Page{Last: true, WAL: o.wal}
	at, _ := slices.BinarySearchFunc(o.rows, o.cursor+1, func(r *orow, id int64) int { return int(r.ID.Int() - id) })
	for _, r := range o.rows[at:] {
		if r.ID.Int() > o.bound {
			break
		}
		if len(p.Events) == o.page {
			p.Last = false
			break
		}
		p.Events = append(p.Events, r.seen(event.Poll))
		o.cursor = r.ID.Int()
	}
	o.mu.Unlock()
	return p, o.answer(ctx)
}

func (o *outbox) EndPass(context.Context) {}

func (o *outbox) States(ctx context.Context, ids []event.RowID) (pending, settled []event.RowID, err error) {
	o.mu.Lock()
	for _, id := range ids {
		if o.byID[id.Int()] != nil {
			pending = append(pending, id)
		} else {
			settled = append(settled, id)
		}
	}
	o.mu.Unlock()
	return pending, settled, o.answer(ctx)
}

func (o *outbox) Nudge(ctx context.Context) error {
	o.set(func(o *outbox) { o.nudges++ })
	return o.answer(ctx)
}

// later calls commit when outcomes are to be committed, and reports what it returns.
func (o *outbox) later(commit func() []event.Settled) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settle < 0 {
		return
	}
	time.AfterFunc(o.settle, func() {
		o.mu.Lock()
		settled := commit()
		o.mu.Unlock()
		o.d.Settled(settled)
	})
}

func (o *outbox) remove(id event.RowID) {
	delete(o.byID, id.Int())
	at, _ := slices.BinarySearchFunc(o.rows, id.Int(), func(r *orow, id int64) int { return int(r.ID.Int() - id) })
	if at == 0 {
		o.rows = o.rows[1:]
	} else {
		o.rows = slices.Delete(o.rows, at, at+1)
	}
}

func (o *outbox) Mark(events []*event.Event) {
	o.later(func() (settled []event.Settled) {
		for _, e := range events {
			if o.byID[e.ID.Int()] == nil {
				panic(fmt.Sprintf("row %v is marked and was not PENDING", e.ID))
			}
			o.remove(e.ID)
			o.marks++
			settled = append(settled, event.Settled{ID: e.ID, State: event.Published})
		}
		return settled
	})
}

func (o *outbox) Fail(e *event.Event, err error) {
	o.later(func() []event.Settled {
		id := e.ID.Int()
		o.failures[id] = append(o.failures[id], err)
		r := o.byID[id]
		r.Attempts++
		if event.ClassOf(err) == event.Permanent || int(r.Attempts) >= o.tries {
			o.remove(e.ID)
			o.dead = append(o.dead, id)
			return []event.Settled{{ID: e.ID, State: event.Dead}}
		}
		r.due = time.Now().Add(o.retry)
		return []event.Settled{{ID: e.ID, State: event.Waiting, DueIn: o.retry}}
	})
}

// broker is a sink that can be told what to answer.
type broker struct {
	mu sync.Mutex

	took     []int64 // ids, in the order of their acknowledgements
	times    map[int64]int
	last     map[string]int64 // the last id of a key that was taken the first time
	disorder []string
	calls    []time.Time
	paths    map[int64]event.Path
	probes   []time.Time

	// Settings; change them by set.
	slow     func() time.Duration // how long a call takes; nil: not at all
	away     error                // of calls and probes
	silent   bool                 // probes hang
	callsBad error                // of calls only
	fails    map[int64]int        // how often an event fails
	instead  func(ctx context.Context, events []*event.Event) []error
}

func newBroker() *broker {
	return &broker{times: map[int64]int{}, last: map[string]int64{}, fails: map[int64]int{}, paths: map[int64]event.Path{}}
}

func (b *broker) set(change func(b *broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *broker) Publish(ctx context.Context, events []*event.Event) []error {
	b.mu.Lock()
	slow, instead := b.slow, b.instead
	b.calls = append(b.calls, time.Now())
	b.mu.Unlock()
	if instead != nil {
		return instead(ctx, events)
	}
	if slow != nil {
		select {
		case <-time.After(slow()):
		case <-ctx.Done():
			return fill(len(events), errAway)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(events))
	failed := map[string]bool{}
	for i, e := range events {
		id := e.ID.Int()
		switch {
		case b.away != nil:
			errs[i] = b.away
		case b.callsBad != nil:
			errs[i] = b.callsBad
		case failed[e.Key]:
			errs[i] = event.ErrNotAttempted
		case b.fails[id] > 0:
			b.fails[id]--
			errs[i] = errOnce
			failed[e.Key] = e.HasKey
		default:
			b.take(e)
		}
	}
	return errs
}

func (b *broker) take(e *event.Event) {
	id := e.ID.Int()
	b.took = append(b.took, id)
	b.paths[id] = e.Path
	if b.times[id]++; b.times[id] > 1 || !e.HasKey {
		return
	}
	if id < b.last[e.Key] {
		b.disorder = append(b.disorder, fmt.Sprintf("%d after %d of key %s", id, b.last[e.Key], e.Key))
	}
	b.last[e.Key] = max(b.last[e.Key], id)
}

func (b *broker) Probe(ctx context.Context) error {
	b.mu.Lock()
	b.probes = append(b.probes, time.Now())
	away, silent := b.away, b.silent
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return away
}

func (b *broker) Check(context.Context, []string) []preflight.Finding { return nil }

func (b *broker) Close(context.Context) error { return nil }

// taken are the ids in the order of their acknowledgements.
func (b *broker) taken() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.took)
}
