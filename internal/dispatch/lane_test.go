package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func sized(id int64, k string, payload int) *event.Event {
	e := row(id, k)
	e.Payload = []byte(strings.Repeat("x", payload))
	return e
}

func TestBoundsG4OneEventLargerThanTheBoundIsTakenAlone(t *testing.T) {
	r := newPollingRig(t, func(l *limits) { l.bytes, l.batchBytes = 1000, 1000 })
	r.after(rigInterval)
	r.begin()
	r.page(100, true, sized(1, "a", 5000), sized(2, "b", 100), sized(3, "c", 5000))
	r.expectSent(1)
	r.ackAll()
	r.expectSent(1, 2, 3) // 2 while nothing else is held; 3 when 2 has its answer
	if r.bytes != 0 || r.machine.rows != 3 {
		t.Errorf("%d bytes and %d rows are held, want the rows until their marks", r.bytes, r.machine.rows)
	}
}

func TestBoundsG4BytesBoundWhatWaits(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.bytes = 3 * sized(1, "a", 100).Size() })
	r.stream(sized(1, "a", 100), sized(2, "b", 100), sized(3, "c", 100), sized(4, "d", 100))
	if r.refused != 1 || len(r.known) != 3 {
		t.Errorf("%d refused, %d taken", r.refused, len(r.known))
	}
}

func TestBoundsALaneIsBounded(t *testing.T) {
	r := newLiveRig(t, func(l *limits) { l.laneRows, l.batch = 3, 1 })
	for id := range int64(5) {
		r.stream(row(id+1, "a"))
	}
	if r.refused != 1 || len(r.known) != 4 {
		t.Errorf("%d refused, %d taken, want one under way and three that wait", r.refused, len(r.known))
	}
	r.expectMode(CatchUp)
}

func routed(id int64, k, topic string) *event.Event {
	e := row(id, k)
	e.Topic = topic
	return e
}

// Two topics are taken by a broker independently of one another: the later event of a key must not be under way while the
// earlier one is.
func TestG3ABatchHasEachKeyWithOneTopicOnly(t *testing.T) {
	r := newPollingRig(t, func(l *limits) { l.lanes = 1 })
	r.after(rigInterval)
	r.begin()
	r.page(100, true, routed(1, "a", "x"), routed(2, "b", "x"), routed(3, "c", "y"), routed(4, "a", "x"), routed(5, "b", "y"), routed(6, "b", "y"),
		routed(7, "a", "y"), routed(8, "b", "x"))
	r.expectSent(1, 2, 3, 4) // 5 has the key of 2 and another topic
	r.done(func(item) error { return nil })
	r.expectSent(1, 2, 3, 4, 5, 6, 7)
	r.done(func(item) error { return nil })
	r.expectSent(1, 2, 3, 4, 5, 6, 7, 8)
}

func TestBatchIsBoundedInRowsAndBytesAndALargeEventGoesAlone(t *testing.T) {
	r := newPollingRig(t, func(l *limits) { l.batch, l.batchBytes = 3, 2*sized(1, "a", 100).Size() })
	r.after(rigInterval)
	r.begin()
	r.page(100, true, sized(1, "a", 100), sized(2, "a", 100), sized(3, "a", 100), sized(4, "a", 9000), sized(5, "a", 0), sized(6, "a", 0))
	var batches []int
	for len(r.flight) > 0 {
		batches = append(batches, len(r.flight[r.inFlight()[0]]))
		r.done(func(item) error { return nil })
	}
	if !slices.Equal(batches, []int{2, 1, 1, 2}) {
		t.Errorf("batches of %v", batches)
	}
}

func TestLaneG3WhatFollowsAFailureOfItsKeyInTheBatchIsLeftToThePass(t *testing.T) {
	r := newPollingRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(100, true, row(1, "a"), row(2, "a"), row(3, "a"))
	r.done(func(it item) error {
		if it.ID.Int() == 1 {
			return errOnce
		}
		return event.ErrNotAttempted
	})
	if !slices.Equal(r.failed, []int64{1}) || len(r.known) != 1 || !r.sinkUp {
		t.Errorf("failed %v, %d known, sink up %v", r.failed, len(r.known), r.sinkUp)
	}
}

func TestLaneAnEventAcknowledgedAfterAFailedOneOfItsKeyIsAnInversionAndCounted(t *testing.T) {
	for name, err := range map[string]error{"failed": errOnce, "held": errAway} {
		t.Run(name, func(t *testing.T) {
			r := newPollingRig(t)
			r.after(rigInterval)
			r.begin()
			r.page(100, true, row(1, "a"), row(2, "a"), row(3, "a"))
			r.failing(err, 1)
			if r.inversions != 2 || !slices.Equal(r.marked, []int64{2, 3}) {
				t.Errorf("%d inversions, marked %v", r.inversions, r.marked)
			}
		})
	}
}

func TestLaneAnEventThatWasNotAttemptedHasNotFailed(t *testing.T) {
	r := newPollingRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(100, true, row(1, "a"))
	r.failing(event.ErrNotAttempted, 1)
	if len(r.failed) != 0 || r.sinkUp {
		t.Errorf("failed %v, sink up %v; want the event held until a probe succeeds", r.failed, r.sinkUp)
	}
	r.sinkBack()
	r.do()
	r.expectSent(1, 1)
}

func TestLaneHoldsItsBatchInOrderWhileTheSinkIsAway(t *testing.T) {
	r := newPollingRig(t)
	r.after(rigInterval)
	r.begin()
	r.page(100, true, row(1, "a"), row(2, "a"), row(3, "a"))
	r.done(func(it item) error {
		switch it.ID.Int() {
		case 1:
			return nil
		case 2:
			return errAway
		default:
			return event.ErrNotAttempted
		}
	})
	if r.sinkUp || r.probes != 1 || len(r.failed) != 0 {
		t.Fatalf("sink up %v, %d probes, failed %v", r.sinkUp, r.probes, r.failed)
	}
	r.after(time.Hour)
	r.expectSent(1, 2, 3)
	r.sinkBack()
	r.do()
	r.finish()
	r.expectSent(1, 2, 3, 2, 3)
	if !slices.Equal(r.marked, []int64{1, 2, 3}) {
		t.Errorf("marked %v", r.marked)
	}
}
