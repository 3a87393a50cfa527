package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

const (
	retryInitial = 200 * time.Millisecond
	retryMax     = 10 * time.Second
	// healthyAfter is how long a stream must have lasted for the next attempt to come without delay. A row that can't be
	// decoded ends one stream after the other.
	healthyAfter = 5 * time.Second
	// A slot's creation waits for open transactions: briefly at first, to say what it waits for, and then longer and
	// longer, for in a database that is never without a transaction of a few seconds a short wait never succeeds.
	firstLockTimeout = 2 * time.Second
	maxLockTimeout   = 5 * time.Minute
	// logInterval is how often the same reason is logged again.
	logInterval = 5 * time.Minute
)

// errRestart ends a stream whose publication was found not to cover the outboxes any more.
var errRestart = errors.New("the stream is restarted to set up its publication again")

// Stream is the fast path. Run it on the active instance only.
type Stream struct {
	cfg      Config
	outboxes []*table.Outbox
	recv     Receiver
	metrics  *Metrics
	log      *slog.Logger

	progress *progress // shared with metrics

	// Owned by the goroutine of Run.
	takeover    takeover
	lockTimeout time.Duration
	stale       string // why an existing slot must be replaced; empty: it need not
	replaces    string // why the slot that is about to be created isn't the first
	hadSlot     bool
	streams     int
	logged      map[string]time.Time // by kind of condition

	mu      sync.Mutex // guards what follows
	state   State
	session *session // nil while there is no stream
}

// New makes a stream of the outboxes' rows to recv. metrics may be nil. Nothing happens before Run.
func New(cfg Config, outboxes []*table.Outbox, recv Receiver, metrics *Metrics, log *slog.Logger) *Stream {
	s := &Stream{
		cfg: cfg.withDefaults(), outboxes: outboxes, recv: recv, metrics: metrics, log: log,
		progress: &progress{}, lockTimeout: firstLockTimeout, logged: map[string]time.Time{},
		state: State{Reason: "the stream wasn't started", Since: time.Now()},
	}
	if metrics != nil {
		s.progress = &metrics.progress
	}
	return s
}

// Run keeps the stream up until ctx ends, and then returns nil. It never gives up: why there is no stream is in State,
// and in the log at a limited rate. It must not be called again before it has returned.
func (s *Stream) Run(ctx context.Context) error {
	s.down("the stream is being started", "")
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = retryInitial, retryMax, 2
	for ctx.Err() == nil {
		lasted, err := s.attempt(ctx)
		if ctx.Err() != nil {
			break
		}
		c := explain(s.cfg, err)
		s.down(c.Error(), sqlState(err))
		s.logDown(ctx, c, err)
		if lasted >= healthyAfter {
			pause.Reset()
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.takeover.within(pause.NextBackOff())):
		}
	}
	s.down("the stream was stopped", "")
	s.progress.heard.Store(0)
	return nil
}

// attempt is one connection from its opening to its end. lasted is how long the stream was on.
func (s *Stream) attempt(ctx context.Context) (lasted time.Duration, err error) {
	var sess *session
	conn, srv, err := open(ctx, s.cfg, s.lockTimeout, func(n *pgconn.Notice) {
		// Among a stream's notices only version 18's "skipped loading publication" has this code.
		if sess != nil && n.Code == codeNotInState {
			sess.skipped = true
		}
	})
	if err != nil {
		return 0, err
	}
	defer shut(conn)
	if err := s.setUp(ctx, conn); err != nil {
		return 0, err
	}
	s.recv.Connecting()
	defer func() { s.recv.Lost(lostReason(ctx, s.cfg, err)) }()
	sess, err = s.begin(ctx, conn, srv)
	if err != nil {
		return 0, s.remember(err)
	}
	began := time.Now()
	err = s.remember(sess.run(ctx))
	return time.Since(began), err
}

func lostReason(ctx context.Context, cfg Config, err error) error {
	if ctx.Err() != nil || err == nil {
		return errStopped
	}
	return explain(cfg, err)
}

// remember notes what the next attempt must do differently. An undefined object on a running stream is the publication:
// the change that was being decoded is older than it, and with a persistent slot it may be met again.
func (s *Stream) remember(err error) error {
	if s.cfg.Create && !s.cfg.Temporary && s.State().Up && (errors.Is(err, errSkipped) || sqlState(err) == codeUndefinedObject) {
		s.stale = stalePublication
	}
	return err
}

// setUp makes sure of the publication and then of the slot.
func (s *Stream) setUp(ctx context.Context, conn *pgx.Conn) error {
	// Each wait for a lock is bounded by lock_timeout; this bounds them together, and a server that is silent.
	ctx, cancel := context.WithTimeout(ctx, stepTimeout+4*s.lockTimeout)
	defer cancel()
	created, err := EnsurePublication(ctx, conn, s.cfg, s.outboxes)
	if created {
		s.log.Info("publication created", "publication", s.cfg.Publication)
		s.stale = stalePublication
	}
	if err != nil {
		return err
	}
	own := conn.Config().RuntimeParams["application_name"]
	change, err := ensureSlot(ctx, conn, s.cfg, s.stale, func(slot slot) error {
		return s.takeover.claim(ctx, conn, s.cfg, own, slot)
	})
	s.noteSlot(change, err)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, endLockTimeout); err != nil {
		return fmt.Errorf("prepare the session: %w", err)
	}
	return nil
}

// noteSlot counts and logs what became of the slot.
func (s *Stream) noteSlot(change slotChange, err error) {
	var c *condition
	if errors.As(err, &c) && c.kind == "slot_waits" {
		s.lockTimeout = min(2*s.lockTimeout, maxLockTimeout)
	}
	switch {
	case change.replaced != "":
		s.replaces = change.replaced // dropped; if its successor couldn't be created, a later attempt does it
	case change.created && s.hadSlot && s.replaces == "":
		s.replaces = "it was gone"
	}
	if err != nil {
		return
	}
	s.lockTimeout, s.stale, s.hadSlot = firstLockTimeout, "", !s.cfg.Temporary
	if !change.created || s.cfg.Temporary {
		return
	}
	if s.replaces == "" {
		s.log.Info("replication slot created", "slot", s.cfg.Slot)
		return
	}
	s.mu.Lock()
	s.state.SlotRecreated++
	s.mu.Unlock()
	s.metrics.recreated()
	s.log.Warn("replication slot recreated", "slot", s.cfg.Slot, "reason", s.replaces)
	s.replaces = ""
}

// begin starts the stream and confirms its start, so that the slot lets go of the past.
func (s *Stream) begin(ctx context.Context, conn *pgx.Conn, srv server) (*session, error) {
	from, durable, err := start(ctx, conn, s.cfg)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	sess := &session{
		conn: conn.PgConn(), recv: s.recv, progress: s.progress, server: srv, tick: s.cfg.tick,
		dec: newDecoder(s.outboxes, s.recv.Offer), start: from, passed: from,
		feedback: feedback{watchdog: s.cfg.Watchdog, received: durable, heardAt: now},
	}
	s.progress.heard.Store(now.UnixNano())
	if u, due := sess.feedback.due(now); due {
		if err := sess.send(u, now); err != nil {
			return nil, err
		}
	}
	s.up(sess, from)
	s.recv.Started(from)
	return sess, nil
}

func (s *Stream) up(sess *session, from pglogrepl.LSN) {
	s.mu.Lock()
	s.session = sess
	s.state.Up, s.state.Reason, s.state.SQLState, s.state.Since, s.state.StartLSN = true, "", "", time.Now(), from
	if s.streams > 0 {
		s.state.Reconnects++
	}
	s.mu.Unlock()
	if s.streams > 0 {
		s.metrics.reconnected()
	}
	s.streams++
	s.log.Info("replication stream is up", "slot", s.cfg.Slot, "start_lsn", from.String())
}

func (s *Stream) down(reason, sqlState string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Up {
		s.state.Since = time.Now()
	}
	s.session = nil
	s.state.Up, s.state.Reason, s.state.SQLState = false, reason, sqlState
}

// logDown logs each kind of reason once, and again after a while.
func (s *Stream) logDown(ctx context.Context, c *condition, err error) {
	level := slog.LevelWarn
	if at, ok := s.logged[c.kind]; ok && time.Since(at) < logInterval {
		level = slog.LevelDebug
	} else {
		s.logged[c.kind] = time.Now()
	}
	s.log.Log(ctx, level, "no replication stream", "kind", c.kind, "reason", c.Error(), "sqlstate", sqlState(err))
}

// State is a snapshot.
func (s *Stream) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	st.ConfirmedLSN = pglogrepl.LSN(s.progress.confirmed.Load())
	st.LastMessageAge = s.progress.age(time.Now())
	return st
}

// RequestPosition has the server say where the stream is, so that Passed is called soon even when nothing commits. It
// may be called from any goroutine, and does nothing while there is no stream.
func (s *Stream) RequestPosition() {
	if sess := s.current(); sess != nil {
		sess.asked.Store(true)
		sess.wake()
	}
}

func (s *Stream) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}
