package history

import (
	"testing"
	"time"
)

func TestOrderFollowsTheCommitsOfAKey(t *testing.T) {
	t.Parallel()
	s := newStory()
	x, y, z := s.commit("a", "k"), s.commit("a", "k"), s.commit("a", "k")
	s.publish(x, z, y)
	s.mark(x, y, z)
	v := expect(t, s, map[string]int{OutOfOrder: 1})
	if v.Tallies[0].OutOfOrder != 1 {
		t.Errorf("tallies %+v", v.Tallies)
	}
}

// By the poll, the order is that of the ids; writers that serialise a key have both in one order, whichever path an
// event takes.
func TestOrderFollowsTheIdsOfAKey(t *testing.T) {
	t.Parallel()
	s := newStory()
	polled := []int64{s.commit("a", "k"), s.commit("a", "k"), s.commit("a", "k"), s.commit("a", "k")}
	s.publish(polled[3], polled[0], polled[1], polled[2])
	s.mark(polled...)
	expect(t, s, map[string]int{OutOfOrder: 3}) // the three that the last one overtook
}

func TestOrderIsThatOfOffsetsWithinAPartition(t *testing.T) {
	t.Parallel()
	s := newStory()
	x, y := s.commit("a", "k"), s.commit("a", "k")
	s.publish(x, y)
	s.mark(x, y)
	s.record(x, 0).At = s.record(y, 0).At // one millisecond
	expect(t, s, map[string]int{})
	s.record(x, 0).Offset, s.record(y, 0).Offset = s.record(y, 0).Offset, s.record(x, 0).Offset
	expect(t, s, map[string]int{OutOfOrder: 1})
}

func TestOrderHoldsAcrossTheTopicsOfAKey(t *testing.T) {
	t.Parallel()
	s := newStory()
	x, y := s.commit("a", "k"), s.commit("b", "k")
	s.publish(y, x)
	s.mark(x, y)
	expect(t, s, map[string]int{OutOfOrder: 1})
	s.record(x, 0).At = s.record(y, 0).At // within a millisecond nobody knows
	expect(t, s, map[string]int{})
}

func TestOrderIsThatOfTheFirstDeliveries(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.window("kill", 1)
	x, y := s.commit("a", "k"), s.commit("a", "k")
	s.publish(x, y, x) // x again, behind y
	s.mark(x, y)
	expect(t, s, map[string]int{})
}

func TestOrderIsPerTable(t *testing.T) {
	t.Parallel()
	s := newStory()
	x, y := s.commit("a", "k"), s.commit("a", "k")
	s.event(y).Table, s.event(y).Seq = "outbox_b", 1
	s.publish(y, x)
	s.mark(x, y)
	expect(t, s, map[string]int{})
}

func TestOrderLeavesOutWhatMayHaveBeenDeletedWithItsTopic(t *testing.T) {
	t.Parallel()
	s := newStory()
	x, y := s.commit("volatile", "k"), s.commit("volatile", "k")
	s.publish(y, x) // again, after the topic was made again: the first deliveries are gone
	s.mark(x, y)
	s.tick(time.Second)
	s.Rules.Recreated["volatile"] = s.now
	expect(t, s, map[string]int{})
}

func TestDuplicatesAreChargedToTheFaultAndHeldAgainstItsBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		repeats, again   int
		found, allowance int
	}{
		{"none is allowed, and none came", 0, 0, 0, 0},
		{"none is allowed, and one came", 0, 1, 1, 0},
		{"what was in flight came again", 1, storyInFlight, 0, storyInFlight},
		{"one more than what was in flight came again", 1, storyInFlight + 1, 1, storyInFlight},
		{"the producer was renewed twice after a crash", 3, 3 * storyInFlight, 0, 3 * storyInFlight},
		{"more than that came again", 3, 3*storyInFlight + 1, 1, 3 * storyInFlight},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			uid := s.deliver("a", "k")
			s.window("kill", c.repeats)
			for range c.again {
				s.publish(uid)
			}
			s.window("walsender terminated", 0)
			s.deliver("a", "k")
			want := map[string]int{}
			if c.found > 0 {
				want[Duplicates] = c.found
			}
			v := expect(t, s, want)
			if v.Tallies[0].Duplicates != 0 || v.Tallies[1].Duplicates != c.again || v.Tallies[2].Duplicates != 0 {
				t.Errorf("tallies %+v, want %d duplicates of the second window", v.Tallies, c.again)
			}
			for _, f := range v.Findings {
				if f.Window != 1 {
					t.Errorf("%s is charged to window %d", f, f.Window)
				}
			}
		})
	}
}

func TestWindowsHaveWhatCameBeforeTheFirst(t *testing.T) {
	t.Parallel()
	windows := []Window{{Began: storyBegan}, {Began: storyBegan.Add(time.Second)}}
	for at, want := range map[time.Duration]int{-time.Second: 0, 0: 0, time.Second - 1: 0, time.Second: 1, time.Hour: 1} {
		if got := windowAt(windows, storyBegan.Add(at)); got != want {
			t.Errorf("%v after the begin is window %d, want %d", at, got, want)
		}
	}
	if got := windowAt(nil, storyBegan); got != -1 {
		t.Errorf("without windows it is %d", got)
	}
}
