package replication

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func TestCase11_ThePositionIsExplicitAndNeverZeroOrAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1e9, 0)
		f := feedback{watchdog: 30 * time.Second, heardAt: now}
		var seen, last pglogrepl.LSN
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(t *rapid.T) {
				pos := pglogrepl.LSN(rapid.Uint64Range(1, 1<<40).Draw(t, "pos"))
				seen = max(seen, pos)
				f.advance(pos)
				f.heard(now)
			},
			"asked by the server": func(*rapid.T) { f.replyDue = true },
			"asked by the relay":  func(*rapid.T) { f.askDue = true },
			"time":                func(t *rapid.T) { now = now.Add(time.Duration(rapid.Int64Range(0, 20e9).Draw(t, "ns"))) },
			"": func(t *rapid.T) {
				before := f.sentAt
				u, due := f.due(now)
				if !due {
					return
				}
				if u.WALFlushPosition == 0 || u.WALWritePosition != u.WALFlushPosition || u.WALApplyPosition != u.WALFlushPosition {
					t.Fatalf("status %+v", u)
				}
				if u.WALFlushPosition > seen || u.WALFlushPosition < last || u.ClientTime.IsZero() {
					t.Fatalf("status %+v after %v, received %v", u, last, seen)
				}
				last = u.WALFlushPosition
				f.told(u, now)
				if since := now.Sub(before); since < askInterval && !u.ReplyRequested {
					t.Fatalf("two statuses within %v", since)
				}
				if _, again := f.due(now); again {
					t.Fatal("due again at once")
				}
			},
		})
	})
}

func TestFeedbackHasItsPace(t *testing.T) {
	t.Parallel()
	start := time.Unix(1e9, 0)
	at := start.Add
	fresh := func() *feedback {
		return &feedback{watchdog: 30 * time.Second, received: 10, sent: 10, sentAt: start, heardAt: start, askedAt: start}
	}
	for name, c := range map[string]struct {
		prepare func(*feedback)
		after   time.Duration // not due a moment before
		asks    bool
	}{
		"moved":               {func(f *feedback) { f.advance(11) }, moveInterval, false},
		"idle":                {func(*feedback) {}, idleInterval, false},
		"asked by the server": {func(f *feedback) { f.replyDue = true }, replyInterval, false},
		"asked by the relay":  {func(f *feedback) { f.askDue = true }, askInterval, true},
		"silent":              {func(f *feedback) { f.sentAt = at(8 * time.Second) }, 15 * time.Second, true},
	} {
		f := fresh()
		c.prepare(f)
		if _, due := f.due(at(c.after - time.Millisecond)); due {
			t.Errorf("%s: due too early", name)
		}
		u, due := f.due(at(c.after))
		if !due || u.ReplyRequested != c.asks {
			t.Errorf("%s: due %v, %+v", name, due, u)
		}
	}
	f := fresh()
	if f.dead(at(30*time.Second-1)) || !f.dead(at(30*time.Second)) {
		t.Error("the watchdog's time")
	}
}
