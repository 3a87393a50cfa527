package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// defaultTick is how often the loop looks up from receiving; it is also the precision of every interval of feedback.
const defaultTick = 100 * time.Millisecond

// writeTimeout bounds the sending of one status. Nothing else may write meanwhile.
const writeTimeout = 10 * time.Second

// session is one stream on one connection. Only wake may be called from another goroutine than the one in run.
type session struct {
	conn     *pgconn.PgConn
	recv     Receiver
	progress *progress
	server   server
	tick     time.Duration

	dec      *decoder
	feedback feedback
	start    pglogrepl.LSN
	passed   pglogrepl.LSN // what the receiver was told last
	answer   bool          // the receiver waits to be told, moved or not
	tendAt   time.Time

	woken   atomic.Bool
	asked   atomic.Bool // the position was requested
	restart atomic.Bool
	skipped bool // a notice said that the publication is skipped
}

// wake makes a blocked receive return at once. A deadline may be set from any goroutine; an expired one leaves the
// connection usable, with what it has of a message.
func (s *session) wake() {
	s.woken.Store(true)
	_ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection, which wakes as well
}

// run receives until the stream ends. It returns nil when ctx has ended.
func (s *session) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.wake)
	defer stop()
	for {
		now := time.Now()
		if !now.Before(s.tendAt) || s.woken.Load() {
			if err := s.tend(ctx, now); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		// Not with a context: that costs more per message than decoding it.
		msg, err := s.conn.ReceiveMessage(context.Background())
		if isTimeout(err) {
			s.tendAt = time.Time{} // also after a wake that came late: the deadline must be moved
			continue
		}
		if err != nil {
			return fmt.Errorf("receive from the server: %w", err)
		}
		if err := s.take(msg, time.Now()); err != nil {
			return err
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// tend does what is due besides receiving. The deadline is moved before the flags are read, so that no wake is lost.
func (s *session) tend(ctx context.Context, now time.Time) error {
	s.tendAt = now.Add(s.tick)
	if err := s.conn.Conn().SetReadDeadline(s.tendAt); err != nil {
		return fmt.Errorf("set the read deadline: %w", err)
	}
	s.woken.Store(false)
	if s.asked.Swap(false) {
		s.feedback.askDue, s.answer = true, true
	}
	switch {
	case ctx.Err() != nil:
		return s.last(now)
	case s.restart.Load():
		return errRestart
	case s.skipped:
		return errSkipped
	case s.feedback.dead(now):
		return errSilent
	}
	if u, due := s.feedback.due(now); due {
		return s.send(u, now)
	}
	if s.feedback.askDue { // it came right after another: somebody waits for the answer, so not a whole tick
		s.tendAt = now.Add(askInterval)
		if err := s.conn.Conn().SetReadDeadline(s.tendAt); err != nil {
			return fmt.Errorf("set the read deadline: %w", err)
		}
	}
	return nil
}

func (s *session) send(u pglogrepl.StandbyStatusUpdate, now time.Time) error {
	net := s.conn.Conn()
	if err := net.SetWriteDeadline(now.Add(writeTimeout)); err != nil {
		return fmt.Errorf("set the write deadline: %w", err)
	}
	if err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, u); err != nil {
		return fmt.Errorf("send the standby status: %w", err)
	}
	if err := net.SetWriteDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear the write deadline: %w", err)
	}
	s.feedback.told(u, now)
	s.progress.confirmed.Store(uint64(u.WALFlushPosition))
	return nil
}

// last confirms what has come before an orderly end, so that the slot keeps no more than it must.
func (s *session) last(now time.Time) error {
	s.feedback.replyDue = true
	if u, due := s.feedback.due(now.Add(replyInterval)); due {
		_ = s.send(u, now) // the connection is given up anyway
	}
	return nil
}

// take handles one message of the connection.
func (s *session) take(msg pgproto3.BackendMessage, now time.Time) error {
	s.feedback.heard(now)
	s.progress.heard.Store(now.UnixNano())
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return s.takeData(msg.Data, now)
	case *pgproto3.ErrorResponse:
		return pgconn.ErrorResponseToPgError(msg)
	case *pgproto3.NoticeResponse, *pgproto3.ParameterStatus:
		return nil // notices are heard by the connection's handler
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return errEnded
	default:
		return fmt.Errorf("%w: %T on the stream", errMalformed, msg)
	}
}

func (s *session) takeData(data []byte, now time.Time) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: it is empty", errMalformed)
	}
	switch data[0] {
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		end, err := s.dec.message(x.WALData, x.ServerTime, now)
		if err != nil {
			return err
		}
		if end != 0 {
			s.reached(end)
		}
		return nil
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		s.keepalive(k)
		return nil
	default:
		return fmt.Errorf("%w: replication message 0x%02x", errMalformed, data[0])
	}
}

// keepalive: whatever was committed before the position that it carries has been sent. Within a transaction it says
// nothing of use; it is answered all the same.
func (s *session) keepalive(k pglogrepl.PrimaryKeepaliveMessage) {
	if k.ReplyRequested {
		s.feedback.replyDue = true
		s.tendAt = time.Time{}
	}
	if !s.dec.inside && k.ServerWALEnd != 0 {
		s.reached(k.ServerWALEnd)
	}
}

// reached: everything before pos has been received and offered. A server that has just begun to read its WAL reports
// positions before the start; they are no news.
func (s *session) reached(pos pglogrepl.LSN) {
	s.feedback.advance(pos)
	pos = s.server.recordStart(pos)
	if pos < s.start || pos < s.passed || pos == s.passed && !s.answer {
		return
	}
	s.passed, s.answer = pos, false
	s.recv.Passed(pos)
}
