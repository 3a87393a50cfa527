package dispatch

import (
	"sync"
	"testing"
)

func TestMailboxGivesEachSendersValuesOnceAndInOrder(t *testing.T) {
	const senders, each = 4, 5000
	box := newMailbox[[2]int]()
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				box.put([2]int{s, i})
			}
		})
	}
	var next [senders]int
	for got := 0; got < senders*each; {
		<-box.signal
		for _, v := range box.take() {
			if v[1] != next[v[0]] {
				t.Fatalf("sender %d: got %d, want %d", v[0], v[1], next[v[0]])
			}
			next[v[0]]++
			got++
		}
	}
	wg.Wait()
	if left := box.take(); len(left) != 0 {
		t.Errorf("%d values came twice", len(left))
	}
}

func TestMailboxKeepsNothingAliveThatWasTaken(t *testing.T) {
	box := newMailbox[*int]()
	box.put(new(int), new(int))
	box.take()
	box.put(new(int))
	box.take()
	for _, v := range box.values[:2] { // the slice that the first two were in
		if v != nil {
			t.Error("a value that was taken is kept")
		}
	}
}
