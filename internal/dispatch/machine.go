package dispatch

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// limits are the machine's settings, with everything derived that New derives.
type limits struct {
	lanes, laneRows   int // rows that wait in one lane
	batch, batchBytes int // of one sink call
	rows, bytes       int // in dispatch: rows until they are settled, bytes until the sink has answered
	bufferRows        int
	bufferBytes       int
	page              int // rows in a full page
	parked            int // keys; more of them keep the mode at CATCHUP
	settle            time.Duration
	interval          time.Duration // between passes
	rampUp            time.Duration
	ordered           bool
	blockOnDead       bool
}

// streamPhase is what the machine knows of the stream.
type streamPhase uint8

const (
	streamDown       streamPhase = iota
	streamConnecting             // its start position is about to be read: nothing the stream could bring is forgotten
	streamUp
)

// machine is the hand-over: see the package comment. The caller sets now before each input and takes the effects after.
type machine struct {
	limits limits
	now    time.Time

	mode   Mode
	reason string // of the last change of mode
	stream struct {
		phase   streamPhase
		started time.Time // when the start position was noted
		pos     pglogrepl.LSN
	}
	sinkUp   bool
	stopping bool

	known       map[event.RowID]entry
	settledRows []settledRow // a queue
	askedAt     time.Time    // when the stream's position was last asked for, for the queue's sake
	lanes       []lane
	touched     []bool
	ready       []int // lanes that may have something to send
	rows, bytes int
	progress    time.Time // when a row was last settled, or taken when there was none
	ramp        ramp

	buffer   *buffer
	lastDrop time.Time // when anything of a stream-fed key was last dropped
	parked   map[key]*parking
	failing  map[key]int // rows whose failure isn't written down yet
	suspects map[event.RowID]suspect

	pass      *pass
	readSeq   uint64 // counts reads of the table
	reading   reading
	lastBegan time.Time // of the last pass
	lastEnded time.Time // of the last pass that came to its end
	wantPass  time.Time // a pass is wanted then, before the interval is over; zero: none
	readPause time.Duration

	asked   []event.RowID // suspects whose state is being asked for
	nudgeAt time.Time     // when suspects that wait for the stream are helped on

	fx effects
}

// effects are what the machine wants done.
type effects struct {
	send        []sending
	mark        []*event.Event
	fail        []failure
	read        *read
	probe       bool // probe the sink until it is back
	askPosition bool // have the server say where the stream is
	changes     []Change

	refused, rescued, inversions int
}

type sending struct {
	lane  int
	items []item
}

type failure struct {
	event *event.Event
	err   error
}

// Change is one change of mode.
type Change struct {
	At     time.Time `json:"at"`
	From   Mode      `json:"from"`
	To     Mode      `json:"to"`
	Reason string    `json:"reason"`
}

func newMachine(l limits, now time.Time) *machine {
	return &machine{
		limits: l, now: now, mode: CatchUp, reason: "start", sinkUp: true, progress: now,
		known:    map[event.RowID]entry{},
		lanes:    make([]lane, l.lanes),
		touched:  make([]bool, l.lanes),
		ramp:     ramp{over: l.rampUp},
		buffer:   newBuffer(l.bufferRows, l.bufferBytes),
		lastDrop: now, wantPass: now,
		parked:   map[key]*parking{},
		failing:  map[key]int{},
		suspects: map[event.RowID]suspect{},
	}
}

// step lets the machine act on its own: start lanes, begin passes, ask. Call it after every input and when wakeAt is due.
func (m *machine) step() effects {
	if m.pass != nil {
		m.consume()
	}
	m.forget()
	m.checkSuspects()
	m.beginPass()
	m.pump()
	fx := m.fx
	m.fx = effects{}
	return fx
}

// wakeAt is when step wants to be called without any input; zero: never.
func (m *machine) wakeAt() time.Time {
	var at time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if m.pass == nil && !m.reading.busy && m.sinkUp && !m.stopping {
		if m.crowded() {
			earlier(m.now.Add(askPause))
		} else {
			earlier(m.nextPass())
		}
	}
	if len(m.suspects) > 0 && !m.reading.busy && m.pass == nil {
		earlier(m.nudgeAt)
	}
	if m.sinkUp && m.ramp.active() && len(m.ready) > 0 {
		earlier(m.now.Add(5 * time.Millisecond))
	}
	return at
}

func (m *machine) setMode(to Mode, reason string) {
	m.reason = reason
	if m.mode != to {
		m.fx.changes = append(m.fx.changes, Change{At: m.now, From: m.mode, To: to, Reason: reason})
		m.mode = to
	}
}

// catchUp makes every key poll-fed. A pass that was begun in LIVE left rows to the stream: it is of no use now.
func (m *machine) catchUp(reason string) {
	if m.pass != nil && m.pass.live {
		m.abortPass()
	}
	m.setMode(CatchUp, reason)
	m.lastDrop = m.now
	clear(m.suspects)
	m.wantPass = m.now
}

// streamConnectingNow comes before the start position is read: from here on the stream may bring what commits.
func (m *machine) streamConnectingNow() {
	m.stream.phase, m.stream.pos = streamConnecting, 0
}

func (m *machine) streamStarted(start pglogrepl.LSN) {
	m.stream.phase, m.stream.pos, m.stream.started = streamUp, start, m.now
	m.buffer.reset()
	m.catchUp("the stream has started")
}

func (m *machine) streamLost(reason string) {
	was := m.stream.phase
	m.stream.phase = streamDown
	if was == streamUp && !m.stopping {
		m.buffer.reset()
		m.catchUp(reason)
	}
}

// streamPassed says that everything committed before pos has been offered.
func (m *machine) streamPassed(pos pglogrepl.LSN) {
	m.stream.pos = max(m.stream.pos, pos)
}

// streamOverflowed says that events were dropped before they could be offered.
func (m *machine) streamOverflowed() {
	m.fx.refused++
	m.buffer.reset()
	m.catchUp("the stream is faster than dispatch")
}

// streamEvent takes a committed row from the stream.
func (m *machine) streamEvent(e *event.Event) {
	if m.stopping {
		return
	}
	if len(m.suspects) > 0 {
		delete(m.suspects, e.ID)
	}
	if _, ok := m.known[e.ID]; ok {
		return
	}
	k := keyOf(e, m.limits.ordered)
	if m.mode != Live || m.parked[k] != nil {
		m.keep(e)
		return
	}
	if !m.feed(item{e, k}) {
		m.refused()
		m.keep(e)
	}
}

// feed offers a stream event. One that isn't due yet parks its key: the pass that finds it due will feed it.
func (m *machine) feed(it item) bool {
	if due := it.ReceivedAt.Add(it.DueIn); it.DueIn > 0 && due.After(m.now) {
		m.park(it.key)
		m.waitUntil(it.key, due)
		return true
	}
	return m.offer(it, 0)
}

// refused makes the poll the feeder again: it brings what did not fit.
func (m *machine) refused() {
	m.fx.refused++
	m.buffer.reset()
	m.catchUp("dispatch is full")
}

// keep buffers an event of a poll-fed key. What falls out is left to a pass that begins late enough to see it.
func (m *machine) keep(e *event.Event) {
	for _, old := range m.buffer.add(e) {
		m.lastDrop = m.now
		if p := m.parked[keyOf(old, m.limits.ordered)]; p != nil {
			p.since = m.now
		}
	}
}

// stop takes no new work: what waits is dropped (it is PENDING), what is in flight is awaited.
func (m *machine) stop() {
	m.stopping = true
	m.abortPass()
	m.buffer.reset()
	clear(m.suspects)
	m.dropWaiting()
}

func (m *machine) dropWaiting() {
	for n := range m.lanes {
		l := &m.lanes[n]
		m.drop(l.held)
		m.drop(l.queue)
		l.held, l.queue = nil, nil
	}
}

// idle reports whether everything that was taken is settled.
func (m *machine) idle() bool {
	if m.stopping && !m.sinkUp {
		m.dropWaiting()
	}
	return m.rows == 0
}
