package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Config are the settings of dispatch. Zero values stand for the defaults given.
type Config struct {
	// Lanes is how many batches may be with the sink at once (32). Events of a key share a lane.
	Lanes int
	// MaxInFlight bounds the rows in dispatch, from when they are taken until their outcome is committed (10000).
	MaxInFlight int
	// MaxInFlightBytes bounds the memory of events that wait or are with the sink (64 MiB). One event may exceed it alone.
	MaxInFlightBytes int
	// BatchRows and BatchBytes bound one call of the sink (512 rows, 1 MiB; a larger event goes alone).
	BatchRows, BatchBytes int
	// PageRows is the size of a full page of the poll (1000): a pass that brings fewer new rows has caught up.
	PageRows int
	// RampUp is the time after an outage in which the pace grows (0: at full pace at once).
	RampUp time.Duration
	// SettleDelay is how long a commit may take from its WAL record until other sessions see it (1 s).
	SettleDelay time.Duration
	// Interval is the time between two polls (10 s).
	Interval time.Duration
	// Unordered gives up the order of events of a key.
	Unordered bool
	// BlockOnDead keeps a key waiting behind its DEAD event until someone decides.
	BlockOnDead bool
	// StopTimeout bounds the wait for what is in flight when Run is told to stop (30 s).
	StopTimeout time.Duration
	// ProbeInitial, ProbeMax and ProbeTimeout pace the probes of an absent sink (200 ms doubling to 10 s, 10 s each).
	ProbeInitial, ProbeMax, ProbeTimeout time.Duration
	// MayPublish is asked before each call of the sink; an error (this instance is no longer the leader) holds the batch.
	MayPublish func() error
	// AskPosition has the stream say where it is; it must not block.
	AskPosition func()
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Lanes, 32)
	def(&c.MaxInFlight, 10000)
	def(&c.MaxInFlightBytes, 64<<20)
	def(&c.BatchRows, 512)
	def(&c.BatchBytes, 1<<20)
	def(&c.PageRows, 1000)
	dur(&c.SettleDelay, time.Second)
	dur(&c.Interval, 10*time.Second)
	dur(&c.StopTimeout, 30*time.Second)
	dur(&c.ProbeInitial, 200*time.Millisecond)
	dur(&c.ProbeMax, 10*time.Second)
	dur(&c.ProbeTimeout, 10*time.Second)
	if c.MayPublish == nil {
		c.MayPublish = func() error { return nil }
	}
	if c.AskPosition == nil {
		c.AskPosition = func() {}
	}
	return c
}

// beatEvery is the longest time that the owner sleeps. There may be nothing to do for long (an outage without a stream, a
// long interval), and Beat must tell that from a standstill.
const beatEvery = 10 * time.Second

// maxParked bounds the keys that are remembered as waiting, about 100 bytes each.
const maxParked = 100_000

func (c Config) limits() limits {
	return limits{
		lanes: c.Lanes, laneRows: max(c.MaxInFlight/4, 1), batch: c.BatchRows, batchBytes: c.BatchBytes,
		rows: c.MaxInFlight, bytes: c.MaxInFlightBytes, bufferRows: c.MaxInFlight, bufferBytes: c.MaxInFlightBytes / 4,
		page: c.PageRows, parked: maxParked, settle: c.SettleDelay, interval: c.Interval, rampUp: c.RampUp,
		ordered: !c.Unordered, blockOnDead: c.BlockOnDead,
	}
}

// Table is where the poll reads. Its methods are called one at a time.
type Table interface {
	// BeginPass notes the bounds of a new pass. A whole one leaves no PENDING row out; another may leave out rows that are
	// unlikely. It returns one event for each key that a DEAD row blocks, where they do.
	BeginPass(ctx context.Context, whole bool) ([]*event.Event, error)
	// NextPage reads the next page of the pass. All pages show the table as it was when the pass began; one that is cut
	// ends the pass before it is through.
	NextPage(ctx context.Context) (event.Page, error)
	// EndPass gives up what is left of the pass, and what it holds in the database.
	EndPass(ctx context.Context)
	// States tells which of the rows are visible and PENDING, and which are visible and not.
	States(ctx context.Context, ids []event.RowID) (pending, settled []event.RowID, err error)
	// Nudge makes the server write and flush a little WAL.
	Nudge(ctx context.Context) error
}

// Settler writes outcomes down and reports them to Dispatcher.Settled. Its methods don't block.
type Settler interface {
	Mark(events []*event.Event)
	Fail(e *event.Event, err error)
}

// Dispatcher carries out what the machine decides: it owns the lanes, the probe of the sink and the reads of the table.
type Dispatcher struct {
	cfg     Config
	sink    sink.Sink
	table   Table
	settler Settler
	metrics *Metrics
	log     *slog.Logger

	inbox   *inbox
	settled *mailbox[event.Settled]
	woken   *mailbox[struct{}]
	reads   chan read
	answers chan answer
	done    chan laneResult
	probed  chan struct{}
	ended   chan struct{} // closed when Run returns

	// Owned by the goroutine of Run.
	lanes       []chan []item
	changes     []Change      // the last ones
	back        time.Time     // when the sink came back last
	acked       bool          // it has taken something since it was last lost
	pause       time.Duration // before the first probe of the last outage
	stale       time.Time     // when the next snapshot is due; zero: the last one shows everything
	tableErrors *quiet
	sinkErrors  *quiet // also used by the probe

	status atomic.Pointer[Status]
	born   time.Time
	beat   atomic.Int64 // nanoseconds since born, so that no step of the wall clock shows
}

// New makes a Dispatcher for one term of leadership. Run may be called once.
func New(cfg Config, s sink.Sink, t Table, settler Settler, metrics *Metrics, log *slog.Logger) *Dispatcher {
	cfg = cfg.withDefaults()
	d := &Dispatcher{
		cfg: cfg, sink: s, table: t, settler: settler, metrics: metrics, log: log,
		inbox:   &inbox{mailbox: newMailbox[streamMsg](), maxRows: int64(cfg.MaxInFlight), maxBytes: int64(cfg.MaxInFlightBytes / 4)},
		settled: newMailbox[event.Settled](),
		woken:   newMailbox[struct{}](),
		reads:   make(chan read, 1), answers: make(chan answer, 1),
		done: make(chan laneResult, cfg.Lanes), probed: make(chan struct{}, 1), ended: make(chan struct{}),
		tableErrors: newQuiet(log), sinkErrors: newQuiet(log),
	}
	now := time.Now()
	d.status.Store(&Status{Mode: CatchUp, Reason: "start", SinkUp: true, Since: now, Progress: now})
	d.born = now
	return d
}

// ErrUnsettled is returned by Run when what was in flight could not be settled within the stop timeout. It is PENDING in
// the table, and may be delivered once more.
var ErrUnsettled = errors.New("stopped before everything in flight was settled; it will be delivered again after the start")

// Run owns the machine until ctx ends; then it takes no new work, waits for what is in flight and returns. When hard ends
// as well it returns at once: nil if nothing was in flight.
func (d *Dispatcher) Run(ctx, hard context.Context) error {
	work, cancel := context.WithCancel(hard)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer close(d.ended)
	d.lanes = make([]chan []item, d.cfg.Lanes)
	for n := range d.lanes {
		d.lanes[n] = make(chan []item, 1)
		defer close(d.lanes[n])
		wg.Go(func() { d.sendLane(work, n, d.lanes[n]) })
	}
	wg.Go(func() { d.readTable(work) })
	absent := make(chan error, 1)
	wg.Go(func() { absent <- d.contact(work) })

	m := newMachine(d.cfg.limits(), time.Now())
	d.log.Info("dispatch has started", "mode", m.mode)
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	var deadline <-chan time.Time
	for {
		select {
		case <-d.inbox.signal:
			m.now = time.Now()
			d.takeStream(m)
		case r := <-d.done:
			m.now = time.Now()
			d.takeResult(m, r)
		case <-d.settled.signal:
			m.now = time.Now()
			for _, s := range d.settled.take() {
				m.settledAs(s)
			}
		case a := <-d.answers:
			m.now = time.Now()
			d.takeAnswer(m, a)
		case err := <-absent:
			m.now = time.Now()
			if err != nil {
				d.sinkErrors.warn("sink is not available", err)
				m.sinkLost()
			}
		case <-d.probed:
			m.now = time.Now()
			d.sinkErrors.over()
			d.log.Info("sink is available again")
			d.back = m.now
			m.sinkBack()
		case <-d.woken.signal:
			m.now = time.Now()
			m.woken()
		case <-timer.C:
			m.now = time.Now()
		case <-stop:
			m.now = time.Now()
			stop = nil
			m.stop()
			deadline = time.After(d.cfg.StopTimeout)
		case <-deadline:
			d.log.Warn("stop timeout is over", "unsettled_events", m.rows)
			return ErrUnsettled
		case <-hard.Done():
			if m.rows == 0 {
				return nil
			}
			return ErrUnsettled
		}
		d.carryOut(work, &wg, m, m.step())
		if m.stopping && m.idle() {
			return nil
		}
		next := m.now.Add(beatEvery)
		if at := m.wakeAt(); !at.IsZero() && at.Before(next) {
			next = at
		}
		if !d.stale.IsZero() && d.stale.Before(next) {
			next = d.stale
		}
		timer.Reset(time.Until(next))
	}
}

// takeResult hands the machine the outcome of a lane.
func (d *Dispatcher) takeResult(m *machine, r laneResult) {
	wasUp := m.sinkUp
	d.acked = d.acked || r.acked
	m.laneDone(r.lane, r.errs)
	if wasUp && !m.sinkUp {
		d.sinkErrors.warn("sink is not available", r.away)
	}
}

// probePause is how long to wait before the first probe. A sink that goes away again soon after its probe succeeded is
// not asked as fast as it answers, and at a growing pause while it takes nothing.
func (d *Dispatcher) probePause(now time.Time) time.Duration {
	switch {
	case now.Sub(d.back) > d.cfg.ProbeMax:
		d.pause = 0
	case d.acked:
		d.pause = d.cfg.ProbeInitial
	default:
		d.pause = min(max(2*d.pause, d.cfg.ProbeInitial), d.cfg.ProbeMax)
	}
	d.acked = false
	return d.pause
}

// carryOut does what the machine wants done; nothing here blocks.
func (d *Dispatcher) carryOut(ctx context.Context, wg *sync.WaitGroup, m *machine, fx effects) {
	if len(fx.mark) > 0 {
		d.settler.Mark(fx.mark)
	}
	for _, f := range fx.fail {
		d.settler.Fail(f.event, f.err)
	}
	for _, s := range fx.send {
		d.lanes[s.lane] <- s.items // has room: the lane has nothing in flight
	}
	if fx.read != nil {
		d.reads <- *fx.read // has room: one read at a time
	}
	if fx.probe {
		pause := d.probePause(m.now)
		wg.Go(func() { d.probe(ctx, pause) })
	}
	if fx.askPosition {
		d.cfg.AskPosition()
	}
	for _, c := range fx.changes {
		d.log.Info("mode has changed", "from", c.From, "to", c.To, "reason", c.Reason)
	}
	d.observe(m, fx)
}
