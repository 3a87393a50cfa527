package dispatch

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// rig drives a machine by hand, and keeps what it wants done.
type rig struct {
	*machine
	t *testing.T

	sent    []int64 // ids, in the order in which they were handed to lanes
	flight  map[int][]item
	marked  []int64
	failed  []int64
	asking  *read
	reads   int
	probes  int
	asks    int // for the stream's position
	changes []Change

	refused, rescued, inversions int
}

const (
	rigSettle   = time.Second
	rigInterval = 10 * time.Second
)

// newRig is in CATCHUP and wants its first pass.
func newRig(t *testing.T, change ...func(*limits)) *rig {
	l := limits{
		lanes: 4, laneRows: 20, batch: 5, batchBytes: 1 << 20, rows: 40, bytes: 1 << 20, bufferRows: 10, bufferBytes: 1 << 20,
		page: 10, parked: 10, settle: rigSettle, interval: rigInterval, ordered: true,
	}
	for _, c := range change {
		c(&l)
	}
	return &rig{machine: newMachine(l, time.Unix(1_000_000, 0)), t: t, flight: map[int][]item{}}
}

// newLiveRig is in LIVE, at position 100.
func newLiveRig(t *testing.T, change ...func(*limits)) *rig {
	t.Helper()
	r := newRig(t, change...)
	r.streamConnectingNow()
	r.streamStarted(100)
	r.after(rigSettle + time.Millisecond)
	r.answerPass()
	r.expectMode(Live)
	return r
}

// newPollingRig is in POLLING.
func newPollingRig(t *testing.T, change ...func(*limits)) *rig {
	t.Helper()
	r := newRig(t, change...)
	r.after(rigSettle + time.Millisecond)
	r.answerPass()
	r.expectMode(Polling)
	return r
}

// do lets the machine step.
func (r *rig) do() {
	fx := r.step()
	for _, s := range fx.send {
		if r.flight[s.lane] != nil {
			r.t.Fatalf("lane %d has two batches under way", s.lane)
		}
		r.flight[s.lane] = s.items
		for _, it := range s.items {
			r.sent = append(r.sent, it.ID.Int())
		}
	}
	for _, e := range fx.mark {
		r.marked = append(r.marked, e.ID.Int())
	}
	for _, f := range fx.fail {
		r.failed = append(r.failed, f.event.ID.Int())
	}
	if fx.read != nil {
		if r.asking != nil {
			r.t.Fatal("two reads at once")
		}
		r.asking = fx.read
		r.reads++
	}
	if fx.probe {
		r.probes++
	}
	if fx.askPosition {
		r.asks++
	}
	r.changes = append(r.changes, fx.changes...)
	r.refused += fx.refused
	r.rescued += fx.rescued
	r.inversions += fx.inversions
}

// after lets time pass.
func (r *rig) after(d time.Duration) {
	r.now = r.now.Add(d)
	r.do()
}

// wakes returns how long from now the machine wants to be woken; negative: never.
func (r *rig) wakes() time.Duration {
	at := r.wakeAt()
	if at.IsZero() {
		return -1
	}
	return at.Sub(r.now)
}

// stream brings events on the stream.
func (r *rig) stream(events ...*event.Event) {
	for _, e := range events {
		e.Path, e.ReceivedAt = event.WAL, r.now
		r.streamEvent(e)
		r.do()
	}
}

// took is the read that the machine asks for, which must be of the kind.
func (r *rig) took(kind readKind) *read {
	r.t.Helper()
	got := r.asking
	if got == nil || got.kind != kind {
		r.t.Fatalf("the machine asks for %+v, want a read of kind %d", got, kind)
	}
	r.asking = nil
	return got
}

// begin answers the beginning of a pass.
func (r *rig) begin(dead ...*event.Event) {
	r.t.Helper()
	r.took(readBegin)
	r.passBegun(dead)
	r.do()
}

// page answers a page, with the WAL position behind it.
func (r *rig) page(wal pglogrepl.LSN, last bool, events ...*event.Event) int {
	r.t.Helper()
	r.took(readPage)
	for _, e := range events {
		e.Path, e.ReceivedAt = event.Poll, r.now
	}
	fresh := r.pageRead(event.Page{Events: events, Last: last, WAL: wal})
	r.do()
	return fresh
}

// states answers which rows are PENDING; the others that were asked for are settled.
func (r *rig) states(pending ...int64) {
	r.t.Helper()
	var yes, no []event.RowID
	for _, id := range r.took(readStates).ids {
		if slices.Contains(pending, id.Int()) {
			yes = append(yes, id)
		} else {
			no = append(no, id)
		}
	}
	r.statesRead(yes, no)
	r.do()
}

// answerPass answers a whole pass of one page, which the machine must have asked for. What is in the buffer is PENDING.
func (r *rig) answerPass(events ...*event.Event) {
	r.t.Helper()
	r.begin()
	r.answerPages(events...)
}

// answerPages answers what follows the beginning of a pass.
func (r *rig) answerPages(events ...*event.Event) {
	r.t.Helper()
	r.page(100, true, events...)
	if r.asking != nil && r.asking.kind == readStates && r.pass != nil {
		var all []int64
		for _, id := range r.asking.ids {
			all = append(all, id.Int())
		}
		r.states(all...)
	}
}

// done is the outcome of the batches under way: err decides for each event.
func (r *rig) done(err func(it item) error) {
	for _, n := range r.inFlight() {
		batch := r.flight[n]
		delete(r.flight, n)
		errs := make([]error, len(batch))
		for i, it := range batch {
			errs[i] = err(it)
		}
		r.laneDone(n, errs)
		r.do()
	}
}

func (r *rig) inFlight() []int {
	var lanes []int
	for n := range r.flight {
		lanes = append(lanes, n)
	}
	slices.Sort(lanes)
	return lanes
}

// ackAll acknowledges until no lane has anything under way.
func (r *rig) ackAll() {
	for len(r.flight) > 0 {
		r.done(func(item) error { return nil })
	}
}

// failing fails the events with these ids and acknowledges the others under way.
func (r *rig) failing(err error, ids ...int64) {
	r.done(func(it item) error {
		if slices.Contains(ids, it.ID.Int()) {
			return err
		}
		return nil
	})
}

// settle reports that the outcomes of rows are committed.
func (r *rig) settle(state event.State, due time.Duration, ids ...int64) {
	for _, id := range ids {
		r.settledAs(event.Settled{ID: event.IntID(0, id), State: state, DueIn: due})
	}
	r.do()
}

// finish acknowledges what is under way and commits the marks.
func (r *rig) finish() {
	r.ackAll()
	r.settle(event.Published, 0, r.marked...)
}

func (r *rig) expectMode(m Mode) {
	r.t.Helper()
	if r.mode != m {
		r.t.Fatalf("mode %v (%s), want %v", r.mode, r.reason, m)
	}
}

func (r *rig) expectSent(ids ...int64) {
	r.t.Helper()
	if !slices.Equal(r.sent, ids) {
		r.t.Fatalf("sent %v, want %v", r.sent, ids)
	}
}

// row makes an event; an empty key is NULL.
func row(id int64, k string) *event.Event {
	return &event.Event{ID: event.IntID(0, id), Topic: "orders", Key: k, HasKey: k != ""}
}

func rowDueIn(id int64, k string, due time.Duration) *event.Event {
	e := row(id, k)
	e.DueIn = due
	return e
}

// rows makes events of different keys.
func rows(from, to int64) (events []*event.Event) {
	for id := from; id <= to; id++ {
		events = append(events, row(id, "key "+strconv.FormatInt(id, 10)))
	}
	return events
}
