package dispatch

import (
	"slices"
	"strconv"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestBufferDropsTheOldestAndKeepsItsBounds(t *testing.T) {
	b := newBuffer(3, 1<<20)
	var dropped []int64
	add := func(e *event.Event) {
		for _, old := range b.add(e) {
			dropped = append(dropped, old.ID.Int())
		}
	}
	for _, e := range rows(1, 5) {
		add(e)
	}
	add(row(5, "key 5")) // again
	if !slices.Equal(dropped, []int64{1, 2}) || b.len() != 3 {
		t.Errorf("dropped %v, %d left", dropped, b.len())
	}
	b.remove(event.IntID(0, 4))
	b.remove(event.IntID(0, 99))
	add(row(6, "f"))
	add(row(7, "g"))
	if !slices.Equal(dropped, []int64{1, 2, 3}) {
		t.Errorf("dropped %v", dropped)
	}
	var left []int64
	for _, e := range b.take() {
		left = append(left, e.ID.Int())
	}
	if !slices.Equal(left, []int64{5, 6, 7}) || b.len() != 0 || b.bytes != 0 {
		t.Errorf("took %v, %d and %d bytes left", left, b.len(), b.bytes)
	}
}

func TestBufferBoundsBytesButKeepsOneEvent(t *testing.T) {
	b := newBuffer(100, 2000)
	b.add(sized(1, "a", 500))
	b.add(sized(2, "b", 500))
	if dropped := b.add(sized(3, "c", 5000)); len(dropped) != 2 || b.len() != 1 {
		t.Errorf("%d dropped, %d left", len(dropped), b.len())
	}
	if dropped := b.add(sized(4, "d", 5)); len(dropped) != 1 || b.bytes != sized(4, "d", 5).Size() {
		t.Errorf("%d dropped, %d bytes left", len(dropped), b.bytes)
	}
}

func TestBufferStaysSmallWhenItsEventsAreTakenOut(t *testing.T) {
	b := newBuffer(10, 1<<20)
	for id := range int64(100_000) {
		b.add(row(id, strconv.FormatInt(id, 10)))
		if id%2 == 0 {
			b.remove(event.IntID(0, id))
		}
		if len(b.events) > 3000 {
			t.Fatalf("%d places for %d events", len(b.events), b.len())
		}
	}
	var left []int64
	for _, e := range b.list() {
		left = append(left, e.ID.Int())
	}
	if len(left) != 10 || left[9] != 99_999 || !slices.IsSorted(left) {
		t.Errorf("left %v", left)
	}
}

func TestBufferADropHoldsTheHandOverBack(t *testing.T) {
	r := newRig(t, func(l *limits) { l.bufferRows = 2 })
	r.streamConnectingNow()
	r.streamStarted(100)
	r.do()
	r.answerPass()
	r.after(rigSettle)
	r.stream(rows(1, 3)...) // 1 falls out
	dropped := r.now
	for r.now.Sub(dropped) <= rigSettle {
		r.answerPass()
		r.expectMode(CatchUp)
		r.after(r.wakes())
	}
	r.expectSent()
	r.answerPass(row(1, "key 1"))
	r.expectMode(Live)
	r.expectSent(1, 2, 3)
}
