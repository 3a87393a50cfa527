package dispatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// world is everything around the machine, with its interleavings chosen at random: writers that are serialised per key,
// commit records that come before visibility, a stream that starts at the current position, reads whose snapshot, WAL
// position and answer come at different times, lanes, a sink that fails events and goes away, marks that need
// visibility, crashes and graceful restarts. One step is a millisecond.
type world struct {
	r    chooser
	opt  options
	m    *machine
	now  time.Time
	step int

	lastID  int
	lsn     pglogrepl.LSN
	rows    map[int]*wrow
	open    [][]*wrow
	commits []*wcommit // not yet visible
	wal     []*wcommit
	locked  map[int]bool
	writing bool
	load    int // percent

	phase     wphase
	stalled   int           // the stream does nothing before this step
	next      int           // entry of wal that the stream brings next
	connectAt pglogrepl.LSN // the position that was read, before the machine is told

	reading *wread
	seen    []*wrow // what the snapshot of the pass under way shows
	cursor  int     // how much of it was read

	flight   map[int][]item
	sinkUp   bool
	probing  bool
	marks    []*event.Event
	fails    []failure
	told     []event.Settled // committed, the machine is not yet told
	stopping bool

	rolled    map[int]bool
	published map[int]int
	last      map[int]int // id last published first, per key
	crashed   bool
	stats     map[string]int
}

// chooser picks numbers below n.
type chooser interface{ IntN(n int) int }

// options are the faults of a run.
type options struct {
	crashes, drops, fails, outages, restarts bool
	lags                                     bool // the stream stalls at times
	deletes                                  bool // a published row is deleted, not marked
	blind                                    bool // the stream skips rows, as one without its publication does
}

type wphase int

const (
	wDown wphase = iota
	wConnecting
	wPositionRead
	wUp
)

type wrow struct {
	id, key  int // key -1: NULL
	visible  bool
	status   string
	due      int // step
	attempts int
	never    bool // the sink can never accept it
}

type wcommit struct {
	lsn  pglogrepl.LSN
	rows []*wrow
	at   int // visible from this step on
}

type wread struct {
	*read
	taken, complete  bool // the snapshot; and the WAL position behind it
	page             event.Page
	pending, settled []event.RowID
}

const (
	wSettle  = 60
	wVisible = 50 // at most so many steps from the commit record to visibility; less than wSettle
	wKeys    = 5
	wPage    = 4
	wTries   = 4
)

// finding is a broken promise.
type finding struct{ error }

func found(format string, args ...any) { panic(finding{fmt.Errorf(format, args...)}) }

func newWorld(r chooser, opt options) *world {
	w := &world{
		r: r, opt: opt, now: time.Unix(1_000_000, 0), rows: map[int]*wrow{}, locked: map[int]bool{}, writing: true, sinkUp: true,
		rolled: map[int]bool{}, published: map[int]int{}, last: map[int]int{}, stats: map[string]int{},
		load: []int{100, 50, 15, 5}[r.IntN(4)],
	}
	w.boot()
	return w
}

func (w *world) boot() {
	w.m = newMachine(limits{
		lanes: 3, laneRows: 6, batch: 3, batchBytes: 1 << 20, rows: 24, bytes: 1 << 20, bufferRows: 10, bufferBytes: 1 << 20,
		page: wPage, parked: 4, settle: wSettle * time.Millisecond, interval: 100 * time.Millisecond, ordered: true,
	}, w.now)
	w.phase, w.reading, w.flight, w.probing = wDown, nil, map[int][]item{}, false
	w.marks, w.fails, w.told, w.stopping = nil, nil, nil, false
}

func (w *world) chance(percent float64) bool { return float64(w.r.IntN(10000)) < percent*100 }

// act lets the machine step and notes its effects.
func (w *world) act() {
	w.m.now = w.now
	fx := w.m.step()
	for _, s := range fx.send {
		if w.flight[s.lane] != nil {
			found("lane %d sends two batches at once", s.lane)
		}
		w.flight[s.lane] = s.items
	}
	w.marks = append(w.marks, fx.mark...)
	w.fails = append(w.fails, fx.fail...)
	if fx.read != nil {
		if w.reading != nil {
			found("two reads at once")
		}
		w.reading = &wread{read: fx.read}
	}
	w.probing = w.probing || fx.probe
	if fx.askPosition && w.phase == wUp && w.next == len(w.wal) {
		w.m.streamPassed(w.lsn)
	}
	for _, c := range fx.changes {
		w.stats[c.To.String()]++
	}
	w.stats["refused"] += fx.refused
	w.stats["rescued"] += fx.rescued
	w.stats["inversions"] += fx.inversions
	w.invariants()
}

func (w *world) invariants() {
	rows, bytes := 0, 0
	for _, e := range w.m.known {
		if e.phase < waiting {
			rows++
		}
	}
	for _, l := range w.m.lanes {
		for _, it := range slices.Concat(l.queue, l.held, l.flight) {
			bytes += it.Size()
		}
	}
	if rows != w.m.rows || bytes != w.m.bytes {
		found("books: %d rows for %d known, %d bytes for %d held", w.m.rows, rows, w.m.bytes, bytes)
	}
	if rows > w.m.limits.rows || w.m.buffer.len() > w.m.limits.bufferRows || len(w.m.parked) > w.m.limits.parked {
		found("bounds: %d rows, %d buffered, %d parked", rows, w.m.buffer.len(), len(w.m.parked))
	}
}

// tick is one step of the world.
func (w *world) tick() {
	w.step++
	w.now = w.now.Add(time.Millisecond)
	w.m.now = w.now
	w.becomeVisible()
	if w.writing && w.fault() {
		w.act()
		return
	}
	if !w.writing {
		w.sinkUp = true
	}
	switch w.r.IntN(16) {
	case 0, 1:
		w.begin()
	case 2, 3:
		w.end()
	case 4, 5, 6:
		w.streamStep()
	case 7, 8, 9:
		w.laneStep(w.r.IntN(3))
	case 10, 11:
		w.markStep()
	case 12, 13, 14:
		w.readStep()
	case 15:
		if w.probing && w.sinkUp {
			w.probing = false
			w.m.sinkBack()
		}
	}
	w.act()
	if w.stopping && w.m.idle() {
		w.stats["restarts"]++
		w.boot()
	}
}

// fault reports whether the step was a fault.
func (w *world) fault() bool {
	switch x := w.r.IntN(1000); {
	case w.opt.crashes && x < 2:
		w.crash()
	case w.opt.drops && x < 4:
		if w.phase == wDown {
			return false
		}
		w.phase = wDown
		w.m.streamLost("dropped")
	case w.opt.outages && x >= 6 && (w.sinkUp && x < 10 || !w.sinkUp && x < 20):
		w.sinkUp = !w.sinkUp
	case w.opt.restarts && x >= 20 && x < 22 && !w.stopping:
		w.stopping = true
		w.m.stop()
	case w.opt.fails && x == 30 && w.reading != nil:
		w.reading = nil
		w.m.readFailed()
	default:
		return false
	}
	return true
}

// crash loses everything in memory; the sink may have taken any part of what was in flight.
func (w *world) crash() {
	w.crashed = true
	w.stats["crashes"]++
	for n := range 3 {
		batch := w.flight[n]
		for _, it := range batch[:w.r.IntN(len(batch)+1)] {
			if w.sinkUp && !w.rows[int(it.ID.Int())].never {
				w.publish(it)
			}
		}
	}
	w.boot()
}

func (w *world) becomeVisible() {
	w.commits = slices.DeleteFunc(w.commits, func(c *wcommit) bool {
		if w.step < c.at {
			return false
		}
		for _, r := range c.rows {
			r.visible = true
			delete(w.locked, r.key)
		}
		return true
	})
}

func (w *world) begin() {
	if !w.writing || w.r.IntN(100) >= w.load {
		return
	}
	if len(w.open) > 0 && w.chance(30) { // one more row, whose id has those of other transactions between
		i := w.r.IntN(len(w.open))
		w.open[i] = append(w.open[i], w.insert(w.open[i][0].key))
		return
	}
	if len(w.open) >= 4 {
		return
	}
	k := w.r.IntN(wKeys+1) - 1
	if w.locked[k] {
		return
	}
	if k >= 0 {
		w.locked[k] = true
	}
	var tx []*wrow
	for range 1 + w.r.IntN(3) {
		tx = append(tx, w.insert(k))
	}
	w.open = append(w.open, tx)
}

func (w *world) insert(k int) *wrow {
	w.lastID++
	row := &wrow{id: w.lastID, key: k, status: "PENDING"}
	row.never = w.opt.fails && w.chance(1)
	if w.opt.fails && w.chance(2) {
		row.due = w.step + w.r.IntN(200) // asked for later
	}
	return row
}

func (w *world) end() {
	if len(w.open) == 0 {
		return
	}
	i := w.r.IntN(len(w.open))
	tx := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	if w.chance(15) {
		for _, r := range tx {
			w.rolled[r.id] = true
			delete(w.locked, r.key)
		}
		return
	}
	w.lsn += 10
	for _, r := range tx {
		w.rows[r.id] = r
	}
	c := &wcommit{w.lsn, tx, w.step + []int{0, 0, 1, 3, wVisible}[w.r.IntN(5)]}
	w.wal = append(w.wal, c)
	w.commits = append(w.commits, c)
}

func (w *world) event(r *wrow, path event.Path) *event.Event {
	e := &event.Event{
		ID: event.IntID(0, int64(r.id)), Path: path, ReceivedAt: w.now, DueIn: time.Duration(r.due-w.step) * time.Millisecond,
		Attempts: int32(r.attempts), Returned: r.attempts > 0 || r.due > 0,
	}
	if r.key >= 0 {
		e.Key, e.HasKey = strconv.Itoa(r.key), true
	}
	return e
}

func (w *world) streamStep() {
	if w.opt.lags && w.chance(0.5) {
		w.stalled = w.step + w.r.IntN(400)
	}
	if w.step < w.stalled {
		return
	}
	switch w.phase {
	case wDown:
		if w.chance(20) && !w.stopping {
			w.phase = wConnecting
			w.m.streamConnectingNow()
		}
	case wConnecting:
		w.phase, w.connectAt, w.next = wPositionRead, w.lsn, len(w.wal)
	case wPositionRead:
		w.phase = wUp
		w.m.streamStarted(w.connectAt)
	case wUp:
		if w.next == len(w.wal) {
			return
		}
		c := w.wal[w.next]
		w.next++
		for _, r := range c.rows {
			if w.opt.blind && c.lsn/1000%2 == 0 {
				continue
			}
			fresh := *r // as it was inserted
			fresh.attempts = 0
			w.m.streamEvent(w.event(&fresh, event.WAL))
		}
		w.m.streamPassed(c.lsn)
	}
}

var (
	errAway      = &event.Error{Class: event.Unavailable, Reason: "away"}
	errPermanent = &event.Error{Class: event.Permanent, Reason: "never"}
	errOnce      = errors.New("this time not")
)

func (w *world) laneStep(n int) {
	batch := w.flight[n]
	if batch == nil {
		return
	}
	errs := make([]error, len(batch))
	bad := map[key]bool{}
	up := w.sinkUp
	for i, it := range batch {
		switch {
		case bad[it.key]:
			errs[i] = event.ErrNotAttempted
		case !up:
			errs[i] = errAway
		case w.rows[int(it.ID.Int())].never:
			errs[i] = errPermanent
		case w.opt.fails && w.chance(4):
			errs[i] = errOnce
			bad[it.key] = true
		default:
			w.publish(it)
		}
	}
	delete(w.flight, n)
	w.m.laneDone(n, errs)
}

func (w *world) publish(it item) {
	id := int(it.ID.Int())
	if w.rolled[id] {
		found("row %d was rolled back and is published", id)
	}
	if r := w.rows[id]; r.due > w.step {
		found("row %d is published at step %d, before it is due at %d", id, w.step, r.due)
	}
	w.published[id]++
	if w.published[id] > 1 {
		w.stats["duplicates"]++
		if !w.crashed {
			found("row %d is published twice without a crash, at step %d", id, w.step)
		}
		return
	}
	if !it.HasKey {
		return
	}
	k := w.rows[id].key
	if id < w.last[k] && !w.opt.blind {
		found("order: row %d after %d of key %d, at step %d", id, w.last[k], k, w.step)
	}
	w.last[k] = max(w.last[k], id)
}

// markStep commits marks and failures, or tells the machine of those that are committed.
func (w *world) markStep() {
	if len(w.told) > 0 && w.chance(70) {
		for _, s := range w.told {
			w.m.settledAs(s)
		}
		w.told = nil
		return
	}
	w.marks = slices.DeleteFunc(w.marks, func(e *event.Event) bool {
		r := w.rows[int(e.ID.Int())]
		if r.visible {
			r.status = "PUBLISHED"
			w.told = append(w.told, event.Settled{ID: e.ID, State: event.Published})
		}
		return r.visible
	})
	w.fails = slices.DeleteFunc(w.fails, func(f failure) bool {
		r := w.rows[int(f.event.ID.Int())]
		if !r.visible {
			return false
		}
		s := event.Settled{ID: f.event.ID, State: event.Waiting}
		if r.attempts++; r.attempts >= wTries || event.ClassOf(f.err) == event.Permanent {
			r.status, s.State = "DEAD", event.Dead
			w.stats["dead"]++
		} else {
			r.due = w.step + 5 + w.r.IntN(80)
			s.DueIn = time.Duration(r.due-w.step) * time.Millisecond
		}
		w.told = append(w.told, s)
		return true
	})
}

// readStep takes a snapshot, reads the WAL position behind it, or brings the answer: each at a time of its own.
func (w *world) readStep() {
	rd := w.reading
	switch {
	case rd == nil:
	case !rd.taken:
		rd.taken = true
		w.snapshot(rd)
	case !rd.complete:
		rd.complete = true
		rd.page.WAL = w.lsn
	default:
		w.reading = nil
		switch rd.kind {
		case readBegin:
			w.m.passBegun(nil)
		case readPage:
			w.m.pageRead(rd.page)
		case readStates:
			w.m.statesRead(rd.pending, rd.settled)
		case readNothing:
			w.m.nudged()
		}
	}
}

func (w *world) snapshot(rd *wread) {
	switch rd.kind {
	case readBegin:
		w.seen, w.cursor = nil, 0
		for _, id := range slices.Sorted(maps.Keys(w.rows)) {
			if r := w.rows[id]; r.visible && r.status == "PENDING" {
				then := *r
				w.seen = append(w.seen, &then)
			}
		}
	case readPage:
		if w.cursor > 0 && w.chance(3) {
			rd.page.Last, rd.page.Cut = true, true
			w.stats["cut"]++
			return
		}
		to := min(w.cursor+wPage, len(w.seen))
		for _, r := range w.seen[w.cursor:to] {
			rd.page.Events = append(rd.page.Events, w.event(r, event.Poll))
		}
		rd.page.Last = to-w.cursor < wPage
		w.cursor = to
	case readStates:
		for _, id := range rd.ids {
			if r := w.rows[int(id.Int())]; r.visible && r.status == "PENDING" {
				rd.pending = append(rd.pending, id)
			} else if r.visible && !w.deleted(r) {
				rd.settled = append(rd.settled, id)
			}
		}
	}
}

func (w *world) deleted(r *wrow) bool { return w.opt.deletes && r.status == "PUBLISHED" }

// run lets the world go on for some steps, then waits until every row has reached its end and the mode is LIVE again.
func (w *world) run(steps int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(finding)
			if !ok {
				panic(p)
			}
			err = f.error
		}
	}()
	for range steps {
		w.tick()
	}
	w.writing = false
	for range 60000 {
		w.tick()
		if len(w.open) == 0 && len(w.commits) == 0 && w.m.mode == Live && len(w.m.parked) == 0 && w.left() == nil {
			return nil
		}
	}
	return fmt.Errorf("not delivered: rows %v of %d; mode %v, %d parked, stream %d, pass %+v, %d buffered", w.left(), len(w.rows), w.m.mode,
		len(w.m.parked), w.phase, w.m.pass, w.m.buffer.len())
}

func (w *world) left() (ids []int) {
	for id, r := range w.rows {
		if r.status == "PENDING" {
			ids = append(ids, id)
		} else if r.status == "PUBLISHED" && w.published[id] == 0 {
			found("row %d is marked and was never published", id)
		}
	}
	return ids
}
