package dispatch

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// With a synchronous standby that lags, a row can stay invisible for longer than the settle delay. No page shows the
// failing row then, and nothing but the failure that isn't written yet holds its key back.
func TestParkingG3AFailureNotYetWrittenKeepsItsKeyParked(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"), row(2, "a"))
	r.failing(errOnce, 1) // 2 waited behind it and is thrown out
	r.expectSent(1)
	for range 3 {
		r.after(rigSettle + time.Millisecond)
		if r.asking != nil {
			r.answerPass() // neither row is visible
		}
	}
	r.stream(row(3, "a"))
	r.expectSent(1)
	if r.wakes() < time.Second {
		t.Errorf("the machine wants to be woken in %v although only the failure's being written can change anything", r.wakes())
	}

	r.settle(event.Waiting, 300*time.Millisecond, 1)
	r.answerPass(rowDueIn(1, "a", 300*time.Millisecond), row(2, "a"), row(3, "a"))
	r.expectSent(1)
	r.after(300 * time.Millisecond)
	r.answerPass(row(1, "a"), row(2, "a"), row(3, "a"))
	r.finish()
	r.expectSent(1, 1, 2, 3)
	r.stream(row(4, "a"))
	r.expectSent(1, 1, 2, 3, 4)
}

func TestParkingG3WhatTheStreamBringsOfAParkedKeyGoesBehindThePassThatFeedsIt(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"))
	r.failing(errOnce, 1)
	r.stream(row(2, "a"), row(3, "b"))
	r.finish()
	r.expectSent(1, 3)
	r.settle(event.Waiting, 2*time.Second, 1)
	r.after(rigSettle + time.Millisecond)
	r.answerPass(rowDueIn(1, "a", time.Second), row(2, "a"))
	r.after(time.Second)
	r.begin()
	r.stream(row(4, "a"))
	r.answerPages(row(1, "a"), row(2, "a")) // its snapshot is older than 4
	r.finish()
	r.expectSent(1, 3, 1, 2, 4)
	r.expectMode(Live)
}

func TestParkingARowThatAsksForALaterTimeIsFedWhenItIsDue(t *testing.T) {
	t.Run("by the stream", func(t *testing.T) {
		r := newLiveRig(t)
		r.stream(rowDueIn(1, "a", 5*time.Second), row(2, "a"), row(3, "b"))
		r.finish()
		r.expectSent(3)
		r.after(rigSettle + time.Millisecond)
		r.answerPass(rowDueIn(1, "a", 4*time.Second-time.Millisecond), row(2, "a"))
		if r.wakes() != 4*time.Second-time.Millisecond {
			t.Errorf("the next pass is in %v, want it when the row is due", r.wakes())
		}
		r.after(r.wakes())
		r.answerPass(row(1, "a"), row(2, "a"))
		r.finish()
		r.expectSent(3, 1, 2)
		r.stream(row(4, "a"))
		r.expectSent(3, 1, 2, 4)
	})
	t.Run("by the stream, soon", func(t *testing.T) {
		r := newLiveRig(t)
		r.stream(rowDueIn(1, "a", 200*time.Millisecond))
		if r.wakes() != 200*time.Millisecond {
			t.Errorf("the next pass is in %v, want it when the row is due", r.wakes())
		}
		r.after(r.wakes())
		r.answerPass(row(1, "a"))
		r.expectSent(1)
	})
	t.Run("by the poll", func(t *testing.T) {
		r := newPollingRig(t)
		r.after(rigInterval)
		r.answerPass(rowDueIn(1, "a", 5*time.Second), row(2, "a"), row(3, "b"))
		r.finish()
		r.expectSent(3)
		r.after(5 * time.Second)
		r.answerPass(row(1, "a"), row(2, "a"))
		r.finish()
		r.expectSent(3, 1, 2)
	})
	t.Run("although its page is old", func(t *testing.T) {
		r := newPollingRig(t)
		r.after(rigInterval)
		r.begin()
		e := rowDueIn(1, "a", 5*time.Second)
		r.took(readPage)
		e.Path, e.ReceivedAt = event.Poll, r.now
		r.now = r.now.Add(6 * time.Second) // dispatch was busy meanwhile
		r.pageRead(event.Page{Events: []*event.Event{e}, Last: true})
		r.do()
		r.expectSent(1)
	})
}

func TestParkingAnEventInTheBufferThatIsNotDueParksItsKey(t *testing.T) {
	r := newRig(t)
	r.streamConnectingNow()
	r.streamStarted(100)
	r.after(0)
	r.answerPass()
	r.stream(rowDueIn(1, "a", 30*time.Second), row(2, "a"), row(3, "b"))
	r.after(rigSettle + time.Millisecond)
	r.answerPass() // neither is visible yet
	r.expectMode(Live)
	r.expectSent(3)
	if r.parked[keyOf(row(1, "a"), true)] == nil || r.buffer.len() != 1 {
		t.Errorf("%d keys are parked and %d events buffered, want the key of the row that waits, with what follows it", len(r.parked), r.buffer.len())
	}
}

func TestBlockOnDeadG3ADeadEventBlocksItsKeyUntilSomeoneDecides(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.blockOnDead = true })
	r.stream(row(1, "a"), row(2, "a"), row(3, "b"))
	r.failing(errPermanent, 1)
	r.settle(event.Dead, 0, 1)
	r.finish()
	r.expectSent(1, 3)

	r.after(rigSettle + time.Millisecond)
	for range 3 {
		r.begin(row(1, "a"))
		r.answerPages(row(2, "a"))
		if w := r.wakes(); w < rigSettle {
			t.Fatalf("the next pass is in %v: nothing is known that it could change", w)
		}
		r.stream(row(4, "a"), row(5, "b"))
		r.after(r.wakes())
	}
	r.finish()
	r.expectSent(1, 3, 5)

	r.answerPass(row(2, "a"), row(4, "a")) // the DEAD row was discarded
	r.finish()
	r.expectSent(1, 3, 5, 2, 4)
	r.stream(row(6, "a"))
	r.expectSent(1, 3, 5, 2, 4, 6)
}

func TestBlockOnDeadADeadRowFoundByThePassBlocksItsKeyFromTheStart(t *testing.T) {
	r := newRig(t, func(l *limits) { l.blockOnDead = true })
	r.do()
	r.begin(row(1, "a"))
	r.page(100, true, row(2, "a"), row(3, "b"))
	r.finish()
	r.expectSent(3)
}

func TestContinueOnDeadAPermanentFailureDoesNotHoldItsKeyBack(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"), row(2, "a"))
	r.failing(errPermanent, 1)
	r.settle(event.Dead, 0, 1)
	r.finish()
	r.expectSent(1, 2)
	if len(r.parked) != 0 || len(r.machine.failing) != 0 {
		t.Errorf("%d keys are parked, %d failing", len(r.parked), len(r.machine.failing))
	}
}

func TestParkingEventsWithoutOrderDoNotWaitForEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		key     string
		ordered bool
	}{"NULL keys": {"", true}, "unordered": {"a", false}} {
		t.Run(name, func(t *testing.T) {
			r := newLiveRig(t, func(l *limits) { l.ordered = c.ordered })
			for id := range int64(20) {
				r.stream(row(id+1, c.key))
			}
			if len(r.flight) != len(r.lanes) {
				t.Errorf("%d of %d lanes are used", len(r.flight), len(r.lanes))
			}
			r.failing(errOnce, 1, 2, 3)
			r.finish()
			all := slices.Sorted(slices.Values(r.sent))
			if len(all) != 20 || len(slices.Compact(all)) != 20 {
				t.Errorf("sent %v, want 20 events once", r.sent)
			}
		})
	}
}

func TestCrowdG1MoreParkedKeysThanMayBeRememberedKeepCatchUpAndLoseNothing(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.parked = 2 })
	r.stream(rows(1, 3)...)
	for len(r.flight) > 0 {
		r.failing(errOnce, 1, 2, 3)
	}
	r.expectMode(CatchUp)
	if r.reason != "too many keys wait for a retry" {
		t.Errorf("the reason is %q", r.reason)
	}
	r.settle(event.Waiting, 5*time.Second, 1, 2, 3)
	due := r.now.Add(5 * time.Second)
	page := func() (events []*event.Event) { // each row is followed by another of its key
		for _, e := range rows(1, 3) {
			events = append(events, rowDueIn(e.ID.Int(), e.Key, due.Sub(r.now)), row(e.ID.Int()+10, e.Key))
		}
		return events
	}
	sent := len(r.sent)
	passes := 0
	for ; r.now.Before(due); r.after(max(r.wakes(), 0)) {
		if r.asking == nil {
			continue
		}
		r.answerPass(page()...)
		passes++
		if len(r.sent) != sent || len(r.parked) > 2 || r.mode != CatchUp {
			t.Fatalf("%d sent, %d keys parked, mode %v", len(r.sent)-sent, len(r.parked), r.mode)
		}
	}
	if passes > 10 || !r.now.Equal(due) {
		t.Errorf("%d passes in 5 s, and one %v after the rows were due", passes, r.now.Sub(due))
	}
	r.answerPass(page()...)
	r.finish()
	for id := int64(1); id <= 3; id++ {
		if at, then := slices.Index(r.sent[sent:], id), slices.Index(r.sent[sent:], id+10); at < 0 || then < at {
			t.Errorf("sent %v, want %d and then %d", r.sent[sent:], id, id+10)
		}
	}
	for range 3 {
		r.after(r.wakes())
		r.answerPass()
	}
	r.expectMode(Live)
}
