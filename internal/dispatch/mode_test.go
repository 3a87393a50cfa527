package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// modes are the changes so far, with their reasons.
func (r *rig) modes() (all []string) {
	for _, c := range r.changes {
		all = append(all, fmt.Sprintf("%v>%v: %s", c.From, c.To, c.Reason))
	}
	return all
}

func TestModeFromTheStartOverEveryChange(t *testing.T) {
	r := newRig(t)
	pass := func() {
		r.after(rigSettle + time.Millisecond)
		r.answerPass()
	}
	pass()
	r.streamConnectingNow()
	r.do()
	r.expectMode(Polling)
	r.streamStarted(100)
	r.do()
	r.answerPass()
	r.expectMode(CatchUp) // the pass began too early
	pass()
	r.streamLost("the stream is lost")
	r.do()
	pass()
	pass()
	r.streamConnectingNow()
	r.streamStarted(200)
	r.do()
	r.answerPass()
	pass()
	r.streamOverflowed()
	r.do()
	r.answerPass()
	pass()
	r.stream(row(1, "a"))
	r.failing(errAway, 1)
	r.expectMode(Live)
	r.sinkBack()
	r.do()
	r.finish()
	r.answerPass()
	pass()
	want := []string{
		"CATCHUP>POLLING: there is no stream",
		"POLLING>CATCHUP: the stream has started",
		"CATCHUP>LIVE: the poll has caught up",
		"LIVE>CATCHUP: the stream is lost",
		"CATCHUP>POLLING: there is no stream",
		"POLLING>CATCHUP: the stream has started",
		"CATCHUP>LIVE: the poll has caught up",
		"LIVE>CATCHUP: the stream is faster than dispatch",
		"CATCHUP>LIVE: the poll has caught up",
		"LIVE>CATCHUP: the sink is back",
		"CATCHUP>LIVE: the poll has caught up",
	}
	if got := r.modes(); !slices.Equal(got, want) {
		t.Errorf("changes:\n%q\nwant\n%q", got, want)
	}
	r.expectSent(1, 1)
}

func TestModePollingWithoutAStreamNotBeforeTheSettleDelay(t *testing.T) {
	r := newRig(t)
	began := r.now
	for r.mode == CatchUp {
		r.do()
		r.answerPass()
		if r.mode == Polling {
			break
		}
		r.now = r.wakeAt()
	}
	if d := r.now.Sub(began); d <= rigSettle || d > rigSettle+2*catchUpPause {
		t.Errorf("POLLING after %v, want it soon after %v", d, rigSettle)
	}
	if r.wakes() != rigInterval {
		t.Errorf("the next pass is in %v, want %v", r.wakes(), rigInterval)
	}
}

func TestModeAFullPassIsFollowedByAnotherAtOnce(t *testing.T) {
	r := newRig(t)
	r.after(rigSettle + time.Millisecond)
	r.answerPass(rows(1, 10)...)
	r.expectMode(CatchUp)
	if r.finish(); r.asking == nil {
		t.Fatal("no pass")
	}
	r.answerPass(rows(11, 19)...)
	r.expectMode(Polling)
}

func TestModeWhilePollingTheStreamsAttemptsChangeNothing(t *testing.T) {
	r := newPollingRig(t)
	r.streamConnectingNow()
	r.streamLost("refused")
	r.do()
	r.expectMode(Polling)
	r.after(rigInterval)
	r.answerPass(row(1, "a"))
	r.expectSent(1)
}

func TestModeWokenBeginsAPassAtOnce(t *testing.T) {
	r := newPollingRig(t)
	r.after(time.Second)
	if r.asking != nil {
		t.Fatal("a pass before its time")
	}
	r.woken()
	r.do()
	r.answerPass(row(1, "a"))
	r.expectSent(1)
}

func TestRefusedG1AnEventThatDoesNotFitIsFirstInTheBufferAndThePollBringsWhatIsMissing(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.rows = 2 })
	r.stream(rows(1, 5)...)
	r.expectMode(CatchUp)
	if r.reason != "dispatch is full" || r.refused != 1 {
		t.Errorf("reason %q, %d refused", r.reason, r.refused)
	}
	var kept []int64
	for _, e := range r.buffer.list() {
		kept = append(kept, e.ID.Int())
	}
	if !slices.Equal(kept, []int64{3, 4, 5}) {
		t.Errorf("buffered %v", kept)
	}
	r.finish()
	r.answerPass() // from before the refusal was old enough
	r.expectMode(CatchUp)
	r.after(rigSettle + time.Millisecond)
	r.answerPass() // none is visible; 3 and 4 fit behind the pass, 5 is refused again
	r.finish()
	r.expectMode(CatchUp)
	r.answerPass(row(5, "key 5"))
	r.finish()
	r.after(rigSettle + time.Millisecond)
	r.answerPass()
	r.expectMode(Live)
	if got := slices.Sorted(slices.Values(r.sent)); !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
		t.Errorf("sent %v", got)
	}
}

func TestHandOverOfTheBufferLeavesOutWhatOthersHaveSettled(t *testing.T) {
	r := newRig(t)
	r.streamConnectingNow()
	r.streamStarted(100)
	r.after(rigSettle + time.Millisecond)
	r.begin()
	r.stream(rows(1, 3)...)
	r.page(100, true)
	r.states(1, 3) // 2 was marked by hand
	r.expectMode(Live)
	if got := slices.Sorted(slices.Values(r.sent)); !slices.Equal(got, []int64{1, 3}) {
		t.Errorf("sent %v", got)
	}
}

func TestStopG10DropsWhatWaitsAndAwaitsWhatIsInFlight(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.lanes, l.batch = 1, 2 })
	r.stream(row(1, "a"), row(2, "b"), row(3, "c"), row(4, "d"))
	r.failing(nil) // 1, so that 2 and 3 are under way
	r.expectSent(1, 2, 3)
	r.stop()
	r.do()
	if r.idle() || len(r.known) != 3 {
		t.Fatalf("idle %v, %d rows known, want 1 to be marked and 2 and 3 in flight", r.idle(), len(r.known))
	}
	r.stream(row(5, "e"))
	r.failing(errOnce, 2)
	r.after(2 * rigInterval)
	r.expectSent(1, 2, 3)
	r.settle(event.Published, 0, 1, 3)
	if r.idle() {
		t.Fatal("the failure of 2 is not written down yet")
	}
	r.settle(event.Waiting, time.Second, 2)
	if !r.idle() || r.asking != nil {
		t.Errorf("idle %v; asks for %+v", r.idle(), r.asking)
	}
}

func TestStopG10DoesNotWaitForASinkThatIsAway(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"), row(2, "a"))
	r.stop()
	r.do()
	r.failing(errAway, 1)
	if !r.idle() || len(r.known) != 0 {
		t.Errorf("idle %v, %d known", r.idle(), len(r.known))
	}
}

// A wake-up that the machine asks for and then does nothing about would be asked for again at once, for as long as the
// stop takes.
func TestStopG10LeavesTheMachineAsleep(t *testing.T) {
	r := newLiveRig(t)
	r.stream(row(1, "a"))
	r.after(rigInterval)
	r.begin()
	r.page(500, true, row(2, "b")) // a suspect
	r.stop()
	r.after(nudgeAfter)
	if w := r.wakes(); w >= 0 || r.asking != nil {
		t.Errorf("the machine wants to be woken in %v, and asks for %+v", w, r.asking)
	}
}

func TestStopG10TheAnswerOfAReadThatIsUnderWayIsIgnored(t *testing.T) {
	r := newRig(t)
	r.do()
	r.begin()
	r.stop()
	r.page(100, true, row(1, "a"))
	r.expectSent()
	if !r.idle() {
		t.Error("not idle")
	}
}

func TestWakeAtIsNeverWhileOnlyAnAnswerCanHelp(t *testing.T) {
	r := newLiveRig(t)
	if r.wakes() != rigInterval {
		t.Errorf("in LIVE the next pass is in %v, want the interval", r.wakes())
	}
	r.after(rigInterval)
	if r.wakes() >= 0 {
		t.Errorf("while a read is under way the machine wants to be woken in %v", r.wakes())
	}
	r.answerPass()
	r.stream(row(1, "a"))
	r.failing(errAway, 1)
	if r.wakes() >= 0 {
		t.Errorf("while the sink is away the machine wants to be woken in %v", r.wakes())
	}
}
