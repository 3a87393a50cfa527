package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The world of the hand-over's property test, with outages and a pace that makes lanes keep a part of what they held.
func TestRampG1G2G3KeepsThePromisesOfTheHandOver(t *testing.T) {
	for seed := range 60 {
		opt := options{outages: true, fails: true, drops: seed%3 == 0, lags: seed%2 == 0, deletes: seed%4 < 2}
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 3)), opt)
		w.m.ramp.over = 400 * time.Millisecond
		if err := w.run(4000); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// rampRig has had an outage, and holds events of one key in one batch. The pace lets it send them one by one.
func rampRig(t *testing.T, events ...*event.Event) *rig {
	t.Helper()
	r := newPollingRig(t, func(l *limits) { l.rampUp, l.lanes = 10*time.Second, 1 })
	r.after(rigInterval)
	r.begin()
	r.page(100, true, events...)
	r.done(func(item) error { return errAway })
	r.sent = nil
	r.sinkBack()
	r.do()
	r.expectSent(events[0].ID.Int())
	return r
}

func TestRampG3ASinkThatGoesAwayAgainDuringTheRampKeepsTheOrder(t *testing.T) {
	r := rampRig(t, row(1, "a"), row(2, "a"), row(3, "a"))
	r.failing(errAway, 1)
	r.sinkBack()
	for range 20 {
		r.after(5 * time.Millisecond)
		r.ackAll()
	}
	r.expectSent(1, 1, 2, 3)
}

func TestRampG3AFailureDuringTheRampHoldsBackWhatTheLaneHolds(t *testing.T) {
	r := rampRig(t, row(1, "a"), row(2, "a"), row(3, "b"))
	r.failing(errOnce, 1)
	for range 20 {
		r.after(5 * time.Millisecond)
		r.ackAll()
	}
	r.expectSent(1, 3)
}

func TestRampWhatWaitsForThePaceDoesNotMeanThatTheSinkIsAway(t *testing.T) {
	r := rampRig(t, row(1, "a"), row(2, "a"), row(3, "a"))
	r.ackAll()
	if !r.sinkUp || r.probes != 1 {
		t.Errorf("sink up %v, %d probes, want one", r.sinkUp, r.probes)
	}
}

func TestRampAsksForNothingWhileTheSinkIsAway(t *testing.T) {
	r := rampRig(t, row(1, "a"), row(2, "a"))
	if w := r.wakes(); w >= 0 {
		t.Errorf("the machine wants to be woken in %v although the lane is busy", w)
	}
	r.failing(errAway, 1)
	if w := r.wakes(); w >= 0 {
		t.Errorf("the machine wants to be woken in %v although the sink is away", w)
	}
	r.sinkBack()
	r.do()
	r.ackAll()
	if w := r.wakes(); w != 5*time.Millisecond {
		t.Errorf("the machine wants to be woken in %v, want the pace's step", w)
	}
}

func TestRampGrowsIsBoundedAndEnds(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	rp := ramp{over: 10 * time.Second}
	if got := rp.allow(now, 500); got != 500 {
		t.Fatalf("before any outage %d of 500 are allowed", got)
	}
	rp.start(now)
	if got := rp.allow(now, 500); got != 1 {
		t.Fatalf("at first %d events are allowed, want one", got)
	}
	var seconds []int
	sent := 0
	for step := 1; rp.active(); step++ {
		now = now.Add(5 * time.Millisecond)
		n := rp.allow(now, 500)
		rp.spend(n)
		if sent += n; step%200 == 0 {
			seconds = append(seconds, sent)
			sent = 0
		}
	}
	if len(seconds) != 10 {
		t.Fatalf("the ramp took %d s, want 10", len(seconds))
	}
	for i := 1; i < 9; i++ { // the last is cut by want
		if got := float64(seconds[i]) / float64(seconds[i-1]); got < 1.8 || got > 2.2 {
			t.Errorf("in second %d the pace grew by %.2f, want it doubled: %v", i+1, got, seconds)
		}
	}
	if seconds[0] < 150 || seconds[0] > 400 {
		t.Errorf("%d events in the first second", seconds[0])
	}
}

func TestRampDoesNotSaveUpAPause(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	rp := ramp{over: 10 * time.Second}
	rp.start(now)
	if got := rp.allow(now.Add(time.Second), 10_000); got > 40 {
		t.Errorf("%d events at once after a second without any, want no more than a tenth of a second's", got)
	}
}

func TestRampOfZeroIsNone(t *testing.T) {
	var rp ramp
	rp.start(time.Unix(1_000_000, 0))
	if rp.active() || rp.allow(time.Unix(1_000_000, 0), 7) != 7 {
		t.Error("a ramp of no length limits the pace")
	}
}
