package replication

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func keepaliveMessage(end uint64, reply bool) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64([]byte{'k'}, end)
	b = binary.BigEndian.AppendUint64(b, 0)
	return &pgproto3.CopyData{Data: append(b, map[bool]byte{true: 1}[reply])}
}

func walMessage(m ...byte) *pgproto3.CopyData {
	return &pgproto3.CopyData{Data: append(append([]byte{'w'}, make([]byte, 24)...), m...)}
}

func commitMessage(end uint64) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64(append([]byte{'C', 0}, make([]byte, 8)...), end)
	return walMessage(binary.BigEndian.AppendUint64(b, 0)...)
}

func newSession(start pglogrepl.LSN) (*session, *recorder) {
	r := &recorder{phase: "started", start: start, passed: start}
	s := &session{recv: r, progress: &progress{}, dec: newDecoder(nil, func(*event.Event) {}), start: start, passed: start}
	s.feedback.received = start
	return s, r
}

func TestTheSessionsPositions(t *testing.T) {
	t.Parallel()
	begin := walMessage(append([]byte{'B'}, make([]byte, 20)...)...)
	for name, c := range map[string]struct {
		messages         []pgproto3.BackendMessage
		received, passed pglogrepl.LSN
		passes           int
	}{
		"a keepalive":                            {[]pgproto3.BackendMessage{keepaliveMessage(150, false)}, 150, 150, 1},
		"a keepalive before the start":           {[]pgproto3.BackendMessage{keepaliveMessage(50, false)}, 100, 100, 0},
		"a keepalive that repeats":               {[]pgproto3.BackendMessage{keepaliveMessage(150, false), keepaliveMessage(150, true)}, 150, 150, 1},
		"a keepalive that goes back":             {[]pgproto3.BackendMessage{keepaliveMessage(150, false), keepaliveMessage(140, true)}, 150, 150, 1},
		"a keepalive without a position":         {[]pgproto3.BackendMessage{keepaliveMessage(0, true)}, 100, 100, 0},
		"a keepalive inside a transaction":       {[]pgproto3.BackendMessage{begin, keepaliveMessage(150, true)}, 100, 100, 0},
		"a transaction":                          {[]pgproto3.BackendMessage{begin, commitMessage(200)}, 200, 200, 1},
		"a transaction with a keepalive in it":   {[]pgproto3.BackendMessage{begin, keepaliveMessage(300, true), commitMessage(200)}, 200, 200, 1},
		"a transaction and a keepalive after it": {[]pgproto3.BackendMessage{begin, commitMessage(200), keepaliveMessage(300, false)}, 300, 300, 2},
		"a notice":                               {[]pgproto3.BackendMessage{&pgproto3.NoticeResponse{}}, 100, 100, 0},
	} {
		s, r := newSession(100)
		for _, m := range c.messages {
			if err := s.take(m, time.Now()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.feedback.received != c.received || r.passed != c.passed || r.passes != c.passes || len(r.bad) > 0 {
			t.Errorf("%s: received %v, passed %v in %d calls, %v", name, s.feedback.received, r.passed, r.passes, r.bad)
		}
	}
	s, _ := newSession(100)
	if err := s.take(keepaliveMessage(150, true), time.Now()); err != nil || !s.feedback.replyDue {
		t.Errorf("a request of the server is forgotten: %v", err)
	}
}

func TestWhatIsNoMessageOfAStreamEndsIt(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]pgproto3.BackendMessage{
		"nothing":           &pgproto3.CopyData{},
		"a short keepalive": &pgproto3.CopyData{Data: []byte{'k', 1, 2}},
		"a long keepalive":  &pgproto3.CopyData{Data: append(keepaliveMessage(1, true).Data, 0)},
		"a short header":    &pgproto3.CopyData{Data: []byte{'w', 1, 2}},
		"no content":        walMessage(),
		"another kind":      &pgproto3.CopyData{Data: []byte{'x'}},
		"a row":             &pgproto3.DataRow{},
	} {
		s, _ := newSession(100)
		if err := s.take(m, time.Now()); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, m := range []pgproto3.BackendMessage{&pgproto3.CopyDone{}, &pgproto3.CommandComplete{}, &pgproto3.ReadyForQuery{}} {
		s, _ := newSession(100)
		if err := s.take(m, time.Now()); !errors.Is(err, errEnded) {
			t.Errorf("%T: %v", m, err)
		}
	}
	s, _ := newSession(100)
	if err := s.take(&pgproto3.ErrorResponse{Code: "57P01"}, time.Now()); sqlState(err) != "57P01" {
		t.Errorf("an error of the server: %v", err)
	}
}
