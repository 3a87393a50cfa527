package dispatch

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// pass is one sweep of the poller over the PENDING rows that were visible when it began.
type pass struct {
	began   time.Time // when it was asked for, which is before its snapshot
	seq     uint64    // of the read that took the snapshot which all its pages show
	live    bool      // begun in LIVE: leaves stream-fed keys to the stream
	blocked map[key]bool
	fresh   int // rows it brought that were not known

	page    *event.Page // what is left of the page in hand; nil: none
	asking  bool        // the pages are done, and the state of what is in the buffer is asked for
	crowded bool        // more keys wait than may be remembered
}

// suspect is a row that a pass found in LIVE and the stream has not brought yet.
type suspect struct {
	key key
	wal pglogrepl.LSN // when the stream has passed it, the row was missed
}

// readKind is what is asked of the table.
type readKind uint8

const (
	readBegin   readKind = iota // note the bounds of a new pass
	readPage                    // the next page of the pass
	readStates                  // which rows are PENDING, and which are settled
	readNothing                 // no rows: only make the server write and flush WAL
)

// read is one request to the table. One is under way at a time.
type read struct {
	kind  readKind
	ids   []event.RowID
	whole bool // readBegin: no PENDING row may be left out, since the order of a key depends on it
}

type reading struct {
	busy    bool
	kind    readKind
	discard bool // nobody wants the answer any more
}

// nudgeAfter is how long suspects wait for the stream before the server is made to flush WAL. An idle server may never
// flush the last WAL written, and then the stream never reports the position that was read behind a page.
const nudgeAfter = time.Second

// catchUpPause is the least time between two passes of CATCHUP that bring little.
const catchUpPause = 50 * time.Millisecond

func (m *machine) read(r read) {
	m.readSeq++
	m.reading = reading{busy: true, kind: r.kind}
	m.fx.read = &r
}

// inUse reports whether rows as they were at the time of read seq, or before, may still be acted on. All pages of a pass
// show its beginning.
func (m *machine) inUse(seq uint64) bool {
	return m.reading.busy && m.readSeq <= seq || m.pass != nil && m.pass.seq <= seq
}

// answered ends the read under way and reports whether its answer is wanted.
func (m *machine) answered() bool {
	wanted := !m.reading.discard && !m.stopping
	m.reading = reading{}
	m.readPause = 0
	return wanted
}

// readFailed gives the pass up; the next one begins after a pause that doubles up to the interval. It finds the suspects
// again, so that their reads pause with it.
func (m *machine) readFailed() {
	m.reading = reading{}
	m.asked = nil
	m.pass = nil
	clear(m.suspects)
	m.readPause = min(max(2*m.readPause, 100*time.Millisecond), m.limits.interval)
	m.lastBegan, m.wantPass = m.now, m.now.Add(m.readPause)
}

// nextPass is when the next pass is to begin.
func (m *machine) nextPass() time.Time {
	at := m.lastBegan.Add(m.limits.interval)
	if !m.wantPass.IsZero() && m.wantPass.Before(at) {
		at = m.wantPass
	}
	return at
}

func (m *machine) beginPass() {
	if m.pass != nil || m.reading.busy || !m.sinkUp || m.stopping || m.nextPass().After(m.now) || m.crowded() {
		return
	}
	m.lastBegan, m.wantPass = m.now, time.Time{}
	m.pass = &pass{began: m.now, live: m.mode == Live, blocked: map[key]bool{}}
	m.read(read{kind: readBegin, whole: m.mode != Live || len(m.parked) > 0})
	m.pass.seq = m.readSeq
}

// abortPass gives the pass under way up. Nothing is lost: what it did not feed is PENDING.
func (m *machine) abortPass() {
	m.pass = nil
	if m.reading.busy {
		m.reading.discard = true
		m.asked = nil
	}
}

// passBegun takes the answer to readBegin: keys that a DEAD row blocks.
func (m *machine) passBegun(dead []*event.Event) {
	if !m.answered() {
		return
	}
	for _, e := range dead {
		m.block(keyOf(e, m.limits.ordered))
	}
	m.read(read{kind: readPage})
}

// pageRead takes a page of the pass, and returns how many rows of it were not known.
func (m *machine) pageRead(p event.Page) (fresh int) {
	if !m.answered() {
		return 0
	}
	m.pass.page = &p
	for _, e := range p.Events {
		if _, known := m.known[e.ID]; !known {
			fresh++
		}
	}
	return fresh
}

// consume feeds what is in the page in hand, as far as dispatch has room.
func (m *machine) consume() {
	p := m.pass
	if p.page == nil {
		return
	}
	for len(p.page.Events) > 0 {
		if !m.feedPolled(p, p.page.Events[0]) || m.pass != p {
			return
		}
		p.page.Events = p.page.Events[1:]
	}
	last := p.page.Last
	cut := p.page.Cut || !last && m.crowded()
	p.page = nil
	switch {
	case cut:
		m.cutPass()
	case !last:
		m.read(read{kind: readPage})
	default:
		m.endPass(p)
	}
}

// cutPass ends a pass that has not seen all rows, so that nothing may be concluded from it; another one follows at once.
func (m *machine) cutPass() {
	m.pass, m.lastEnded = nil, m.now
	m.want(m.now)
	if len(m.suspects) > 0 {
		m.fx.askPosition = true
	}
}

// feedPolled handles one row of a page; false: dispatch is full, try again later.
func (m *machine) feedPolled(p *pass, e *event.Event) bool {
	k := keyOf(e, m.limits.ordered)
	known, isKnown := m.known[e.ID]
	switch {
	case isKnown:
		if known.phase == failing || known.phase == waiting { // the row may look due, as it was before the failure
			m.blockRow(p, k, time.Time{})
		}
	case e.DueIn > 0 && e.ReceivedAt.Add(e.DueIn).After(m.now):
		m.blockRow(p, k, e.ReceivedAt.Add(e.DueIn))
	case p.blocked[k]:
	case m.mode == Live && m.parked[k] == nil:
		if e.Returned { // a retry by command, or a redrive: never the stream's, so the next pass feeds it in order
			m.park(k)
			m.want(m.now)
		} else {
			m.suspect(e, suspect{k, p.page.WAL})
		}
	default:
		if !m.offer(item{e, k}, p.page.WAL) {
			return false
		}
		p.fresh++
	}
	return true
}

// suspect holds a row that the stream may still bring; the pass that found it first has the position that counts, or
// passes which follow each other fast would put it off for ever. A stream that leaves so many to the poll is of no use.
func (m *machine) suspect(e *event.Event, s suspect) {
	if len(m.suspects) >= m.limits.rows {
		m.catchUp("the stream brings nothing")
		return
	}
	if len(m.suspects) == 0 {
		m.nudgeAt = m.now.Add(nudgeAfter)
	}
	if _, ok := m.suspects[e.ID]; !ok {
		m.suspects[e.ID] = s
	}
}

// blockRow blocks a key for the rest of the pass; the first row of the key decides when to look again.
func (m *machine) blockRow(p *pass, k key, due time.Time) {
	if p.blocked[k] {
		return
	}
	m.block(k)
	if !due.IsZero() {
		m.waitUntil(k, due)
	}
}

// endPass is called when the last page is fed. Before what is in the buffer goes behind it, one query tells what of that
// was settled by others meanwhile.
func (m *machine) endPass(p *pass) {
	if m.buffer.len() == 0 {
		m.handOver(p, nil)
		return
	}
	p.asking = true
	ids := make([]event.RowID, 0, m.buffer.len())
	for _, e := range m.buffer.list() {
		ids = append(ids, e.ID)
	}
	m.read(read{kind: readStates, ids: ids})
}

// statesRead takes the answer to readStates: which of the rows asked for are visible and PENDING, and which are visible
// and not. Rows in neither are not visible (yet), or deleted.
func (m *machine) statesRead(pending, settled []event.RowID) {
	if !m.answered() {
		return
	}
	if m.pass != nil {
		done := make(map[event.RowID]bool, len(settled))
		for _, id := range settled {
			done[id] = true
		}
		m.handOver(m.pass, done)
		return
	}
	m.rescue(pending)
}

// handOver makes keys stream-fed again, if the pass began late enough, and feeds what the buffer has of them behind it.
func (m *machine) handOver(p *pass, done map[event.RowID]bool) {
	m.pass, m.lastEnded = nil, m.now
	settle := m.limits.settle
	if m.mode != Live {
		complete := !p.crowded && p.fresh < m.limits.page
		switch {
		case complete && m.stream.phase == streamUp && p.began.After(m.lastDrop.Add(settle)) && p.began.After(m.stream.started.Add(settle)):
			m.setMode(Live, "the poll has caught up")
		case complete && m.stream.phase == streamDown && p.began.After(m.lastDrop.Add(settle)):
			m.setMode(Polling, "there is no stream")
		case p.fresh >= m.limits.page:
			m.want(m.now)
		case p.crowded: // until the interval is over
		default:
			m.want(m.now.Add(catchUpPause))
		}
	}
	m.unpark(p)
	if m.mode == Live {
		m.flush(done)
	}
	if len(m.suspects) > 0 {
		m.fx.askPosition = true
	}
}

// flush feeds what is in the buffer of stream-fed keys.
func (m *machine) flush(done map[event.RowID]bool) {
	for _, e := range m.buffer.take() {
		k := keyOf(e, m.limits.ordered)
		_, isKnown := m.known[e.ID]
		switch {
		case isKnown, done[e.ID]:
		case m.mode != Live: // refused a moment ago, and the rest with it
		case m.parked[k] != nil:
			m.keep(e)
		case !m.feed(item{e, k}):
			m.refused()
		}
	}
}

// checkSuspects asks what became of rows that the stream should have brought by now.
func (m *machine) checkSuspects() {
	if len(m.suspects) == 0 || m.reading.busy || m.pass != nil || m.stopping {
		return
	}
	var ids []event.RowID
	for id, s := range m.suspects {
		if _, ok := m.known[id]; ok {
			delete(m.suspects, id)
		} else if s.wal <= m.stream.pos {
			ids = append(ids, id)
		}
	}
	switch {
	case len(ids) > 0:
		m.asked = ids
		m.read(read{kind: readStates, ids: ids})
	case len(m.suspects) > 0 && !m.nudgeAt.After(m.now):
		m.nudgeAt = m.now.Add(nudgeAfter)
		m.read(read{kind: readNothing})
	}
}

// rescue hands the keys of missed rows to the poll.
func (m *machine) rescue(pending []event.RowID) {
	for _, id := range pending {
		s, ok := m.suspects[id]
		if _, known := m.known[id]; !ok || known {
			continue
		}
		m.fx.rescued++
		m.park(s.key)
		m.want(m.now)
	}
	for _, id := range m.asked {
		delete(m.suspects, id)
	}
	m.asked = nil
}

// nudged takes the answer to readNothing.
func (m *machine) nudged() {
	if m.answered() {
		m.fx.askPosition = true
	}
}

// woken asks for a pass now.
func (m *machine) woken() { m.want(m.now) }
