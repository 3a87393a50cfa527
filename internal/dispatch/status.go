package dispatch

import (
	"log/slog"
	"sync"
	"time"
)

// Status is what dispatch shows of itself.
type Status struct {
	Mode       Mode      `json:"mode"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since"`
	SinkUp     bool      `json:"sink_up"`
	SinkReason string    `json:"sink_reason,omitempty"` // why the sink is not up
	InFlight   int       `json:"in_flight_events"`
	Bytes      int       `json:"in_flight_bytes"`
	Blocked    int       `json:"blocked_keys"`
	Buffered   int       `json:"buffered_events"`
	Changes    []Change  `json:"changes"` // the last ones, oldest first
	// Progress is when the outcome of an event was last committed, or, when none was in flight, taken.
	Progress time.Time `json:"progress"`
	// LastPass is when a pass last came to its end; zero: none has.
	LastPass time.Time `json:"-"`
	// Beat is when the owner of dispatch last did anything; it does every 10 s at the latest.
	Beat       time.Time `json:"-"`
	ObservedAt time.Time `json:"-"`
}

// Status is a recent snapshot; it may be called from any goroutine.
func (d *Dispatcher) Status() Status {
	s := *d.status.Load()
	s.Beat = d.born.Add(time.Duration(d.beat.Load()))
	return s
}

const (
	keptChanges = 50
	statusPause = 100 * time.Millisecond
)

// observe updates metrics, and the snapshot when it has grown old or the mode has changed.
func (d *Dispatcher) observe(m *machine, fx effects) {
	d.metrics.refused.Add(float64(fx.refused))
	d.metrics.rescued.Add(float64(fx.rescued))
	d.metrics.inversions.Add(float64(fx.inversions))
	d.beat.Store(int64(m.now.Sub(d.born)))
	last := d.status.Load()
	if len(fx.changes) == 0 && last.SinkUp == m.sinkUp && (m.rows == 0) == (last.InFlight == 0) && m.now.Sub(last.ObservedAt) < statusPause {
		d.stale = last.ObservedAt.Add(statusPause)
		return
	}
	d.stale = time.Time{}
	d.changes = append(d.changes, fx.changes...)
	if n := len(d.changes) - keptChanges; n > 0 {
		d.changes = append([]Change(nil), d.changes[n:]...)
	}
	s := &Status{
		Mode: m.mode, Reason: m.reason, Since: last.Since, SinkUp: m.sinkUp, InFlight: m.rows, Bytes: m.bytes, Blocked: len(m.parked),
		Buffered: m.buffer.len(), Changes: append([]Change(nil), d.changes...), ObservedAt: m.now, Progress: m.progress, LastPass: m.lastEnded,
	}
	if !m.sinkUp {
		s.SinkReason = d.sinkErrors.text()
	}
	if len(fx.changes) > 0 {
		s.Since = m.now
	}
	d.status.Store(s)
	d.metrics.show(s)
}

// quiet logs an error when it is new, and then once a minute with the number of times it came.
type quiet struct {
	log   *slog.Logger
	mu    sync.Mutex
	last  string
	at    time.Time
	times int
}

const quietFor = time.Minute

func newQuiet(log *slog.Logger) *quiet { return &quiet{log: log} }

func (q *quiet) warn(msg string, err error) {
	if err == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.times++
	if text := err.Error(); text != q.last || time.Since(q.at) > quietFor {
		q.log.Warn(msg, "error", err, "times", q.times)
		q.last, q.at, q.times = text, time.Now(), 0
	}
}

// text is the last error.
func (q *quiet) text() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// over forgets the error: the next one is new.
func (q *quiet) over() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last, q.times = "", 0
}
