package dispatch

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func returned(id int64, k string) *event.Event {
	e := row(id, k)
	e.Returned, e.Attempts = true, 1
	return e
}

func TestPassARowThatWasTriedBeforeIsFedByTheNextPassAndNotRescued(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.answerPass(returned(1, "a"), row(2, "a"))
	r.expectSent()
	if len(r.suspects) != 0 {
		t.Errorf("%d suspects: the stream never brings a row again", len(r.suspects))
	}
	r.answerPass(returned(1, "a"), row(2, "a")) // the next one comes at once
	r.finish()
	r.expectSent(1, 2)
	if r.rescued != 0 {
		t.Errorf("%d rows are counted as rescued", r.rescued)
	}
	r.after(r.wakes())
	r.answerPass()
	r.stream(row(3, "a"))
	r.expectSent(1, 2, 3)
	r.expectMode(Live)
}

func TestPassAWholeOneIsAskedForWhenAnOrderDependsOnIt(t *testing.T) {
	r := newRig(t)
	r.do()
	if !r.asking.whole {
		t.Error("a pass of CATCHUP is not whole")
	}
	r = newLiveRig(t)
	r.after(rigInterval)
	if r.asking.whole {
		t.Error("a pass of LIVE is whole although no key is parked")
	}
	r.answerPass(returned(1, "a"))
	if r.do(); !r.asking.whole {
		t.Error("a pass that feeds a parked key is not whole")
	}
}

func TestSuspectsG1ARowThatTheStreamMissedIsRescuedOnceTheStreamHasPassedIt(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(1, "a"), row(2, "b"), row(3, "c"))
	if r.asks != 1 {
		t.Errorf("the stream was asked %d times where it is, want once", r.asks)
	}
	r.stream(row(2, "b")) // it was only late
	r.streamPassed(499)
	r.do()
	if r.asking != nil {
		t.Fatal("the stream may still bring the rows")
	}
	r.streamPassed(500)
	r.do()
	if n := len(r.asking.ids); n != 2 {
		t.Fatalf("the state of %d rows is asked for, want those of 1 and 3", n)
	}
	r.states(1) // 3 was deleted
	if r.rescued != 1 {
		t.Errorf("%d rows are counted as rescued, want one", r.rescued)
	}
	r.answerPass(row(1, "a"))
	r.finish()
	r.expectSent(2, 1)
	r.expectMode(Live)
}

func TestSuspectsThatTheStreamBringsToAParkedKeyAreNotMissed(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"))
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(1, "a"), row(2, "a"))
	r.failing(errOnce, 1)
	r.stream(row(2, "a"))
	r.streamPassed(500)
	r.do()
	if r.asking != nil || r.rescued != 0 {
		t.Errorf("asks for %+v, %d rescued", r.asking, r.rescued)
	}
}

func TestSuspectsWaitForTheStreamAndThenTheServerIsMadeToFlush(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(1, "a"))
	if r.wakes() != nudgeAfter {
		t.Fatalf("the machine wants to be woken in %v, want %v", r.wakes(), nudgeAfter)
	}
	for range 2 {
		r.after(nudgeAfter)
		r.took(readNothing)
		r.nudged()
		r.do()
	}
	if r.asks != 3 {
		t.Errorf("the stream was asked %d times where it is, want behind the pass and behind each nudge", r.asks)
	}
	r.streamPassed(500)
	r.do()
	r.states(1)
	if r.rescued != 1 {
		t.Errorf("%d rescued", r.rescued)
	}
}

// Passes can follow each other fast, where many keys wait for their retries. Each finds the suspect again, with a position
// that is further on.
func TestSuspectsG1FrequentPassesDoNotPutOffTheRescue(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(1, "a"))
	for range 9 {
		r.after(100 * time.Millisecond)
		r.woken()
		r.do()
		r.begin()
		r.page(600, true, row(1, "a"))
	}
	r.after(100 * time.Millisecond)
	r.took(readNothing) // the first second is over
	r.nudged()
	r.streamPassed(500)
	r.do()
	if r.asking == nil {
		t.Fatal("the stream has passed the position that the first pass read, and still the row isn't missed")
	}
	r.states(1)
	if r.rescued != 1 {
		t.Errorf("%d rescued", r.rescued)
	}
}

func TestSuspectsMoreThanDispatchCouldTakeMeanThatTheStreamIsOfNoUse(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.rows = 3 })
	r.after(rigInterval)
	r.begin()
	r.page(500, false, rows(1, 5)...)
	r.expectMode(CatchUp)
	if r.reason != "the stream brings nothing" || len(r.suspects) != 0 {
		t.Errorf("reason %q, %d suspects", r.reason, len(r.suspects))
	}
	r.answerPass(rows(1, 3)...)
	r.finish()
	if len(r.sent) != 3 || r.rescued != 0 {
		t.Errorf("%d sent, %d rescued", len(r.sent), r.rescued)
	}
}

func TestReadFailedPausesDoubleUpToTheInterval(t *testing.T) {
	r := newRig(t)
	r.do()
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		r.asking = nil
		r.readFailed()
		r.do()
		if got := r.wakes(); got != want*time.Millisecond {
			t.Fatalf("the next pass begins in %v, want %v", got, want*time.Millisecond)
		}
		r.after(r.wakes())
		if r.asking == nil {
			t.Fatal("no pass")
		}
	}
	r.answerPass()
	r.after(r.wakes())
	r.took(readBegin)
	r.readFailed()
	if got := r.wakes(); got != 100*time.Millisecond {
		t.Errorf("after a read that succeeded the pause is %v", got)
	}
}

func TestReadFailedInTheMiddleOfAPassBeginsANewOne(t *testing.T) {
	r := newRig(t)
	r.do()
	r.begin()
	r.page(100, false, row(1, "a"))
	r.took(readPage)
	r.readFailed()
	r.after(r.wakes())
	r.answerPass(row(1, "a"), row(2, "a"))
	r.finish()
	r.expectSent(1, 2)
}

// The state of suspects is asked for as soon as the stream has passed them: when that fails, it must not be asked for
// again and again.
func TestReadFailedForSuspectsPausesLikeAnyOther(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(100, true, row(1, "a")) // the stream is already there
	r.took(readStates)
	r.readFailed()
	r.do()
	if r.asking != nil {
		t.Fatal("asked again at once")
	}
	if w := r.wakes(); w != 100*time.Millisecond {
		t.Fatalf("the machine wants to be woken in %v, want the pause", w)
	}
	r.after(r.wakes())
	r.begin()
	r.page(100, true, row(1, "a"))
	r.states(1)
	if r.rescued != 1 {
		t.Errorf("%d rescued", r.rescued)
	}
}

func TestReadFailedWhileTheSinkIsAwayDoesNotKeepTheMachineAwake(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(1, "a"))
	r.stream(row(2, "b"))
	r.failing(errAway, 2)
	r.streamPassed(500)
	r.do()
	r.took(readStates)
	r.readFailed()
	for range 20 {
		r.do()
		if r.asking != nil {
			r.asking = nil
			r.readFailed()
			continue
		}
		w := r.wakes()
		if w < 0 {
			break
		}
		if w == 0 {
			t.Fatal("the machine wants to be woken at once, and does nothing then")
		}
		r.after(w)
	}
	if r.reads > 20 {
		t.Errorf("%d reads", r.reads)
	}
}

func TestPassAnAnswerThatNobodyWantsAnyMoreIsIgnored(t *testing.T) {
	r := newLiveRig(t)
	r.after(rigInterval)
	r.begin()
	r.streamLost("the stream is lost") // aborts the pass that was begun in LIVE
	r.do()
	if n := r.page(500, true, row(1, "a"), row(2, "b")); n != 0 {
		t.Errorf("%d rows of an aborted pass are counted as received", n)
	}
	r.expectSent()
	r.begin()
	if n := r.page(500, true, row(1, "a")); n != 1 {
		t.Errorf("%d rows are new, want 1", n)
	}
	r.expectSent(1)
}

func TestPassWaitsWithItsPageUntilDispatchHasRoom(t *testing.T) {
	r := newRig(t, func(l *limits) { l.rows = 3 })
	r.do()
	r.begin()
	r.page(100, true, rows(1, 5)...)
	if len(r.known) != 3 {
		t.Fatalf("%d rows are in dispatch, want 3", len(r.known))
	}
	if w := r.wakes(); w >= 0 {
		t.Errorf("the machine wants to be woken in %v, but only an outcome can help", w)
	}
	r.ackAll()
	if len(r.known) != 3 {
		t.Fatal("rows that aren't marked yet count")
	}
	r.finish()
	r.finish()
	if len(r.sent) != 5 || r.machine.rows != 0 {
		t.Errorf("sent %v, %d rows left", r.sent, r.machine.rows)
	}
}
