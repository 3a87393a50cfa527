package history

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// kinds counts the findings by kind.
func kinds(v *Verdict) map[string]int {
	n := map[string]int{}
	for _, f := range v.Findings {
		n[f.Kind]++
	}
	return n
}

// expect checks the story and wants exactly these findings.
func expect(t *testing.T, s *story, want map[string]int) *Verdict {
	t.Helper()
	v := Check(s.History)
	if got := kinds(v); !maps.Equal(got, want) {
		t.Errorf("found %v, want %v:", got, want)
		for _, f := range v.Findings {
			t.Logf("  %s", f)
		}
	}
	return v
}

// violations break one promise each. Beside it stand deliveries of the same key that are in order.
var violations = []struct {
	name string
	tell func(s *story)
	want map[string]int
}{
	{"a PUBLISHED row is not in its topic", func(s *story) {
		s.unpublish(s.deliver("a", "k"))
	}, map[string]int{Lost: 1}},
	{"a row was marked and purged and never published", func(s *story) {
		uid := s.deliver("a", "k")
		s.unpublish(uid)
		s.tick(2 * storyRetention)
		s.remove(uid)
	}, map[string]int{Lost: 1}},
	{"an event only has the record of another one's topic", func(s *story) {
		uid := s.deliver("a", "k")
		s.record(uid, 0).Topic = "b"
	}, map[string]int{Content: 1}},
	{"a rolled back event is published", func(s *story) {
		s.publish(s.rollBack("a", "k"))
	}, map[string]int{Phantom: 1}},
	{"a record has no writer", func(s *story) {
		s.record(s.deliver("a", "other"), 0).UID = 999
	}, map[string]int{Phantom: 1, Lost: 1}},
	{"a rolled back event has a row", func(s *story) {
		s.event(s.commit("a", "k")).Committed = false
	}, map[string]int{RowGone: 1}},
	{"a row has no writer", func(s *story) {
		s.Rows = append(s.Rows, Row{UID: 999, ID: 999, Status: Published})
	}, map[string]int{RowGone: 1}},
	{"a row is PENDING in the end", func(s *story) {
		s.commit("a", "k")
	}, map[string]int{Unsettled: 1}},
	{"a row is PENDING in the end, though it was published", func(s *story) {
		s.publish(s.commit("a", "k"))
	}, map[string]int{Unsettled: 1}},
	{"a committed row is gone, and nobody deleted it", func(s *story) {
		s.deliver("a", "k")
		s.Rows = s.Rows[:len(s.Rows)-1]
	}, map[string]int{RowGone: 1}},
	{"a row is purged before its retention is over", func(s *story) {
		uid := s.deliver("a", "k")
		s.tick(storyRetention / 2)
		s.remove(uid)
	}, map[string]int{RowGone: 1}},
	{"a PENDING row is deleted", func(s *story) {
		s.remove(s.commit("a", "k"))
	}, map[string]int{Transition: 1, Lost: 1}},
	{"a DEAD row is deleted", func(s *story) {
		uid := s.poison("k")
		s.tick(2 * storyRetention)
		s.remove(uid)
	}, map[string]int{Transition: 1, Lost: 1}},
	{"a PUBLISHED row becomes PENDING again", func(s *story) {
		uid := s.deliver("a", "k")
		s.become(uid, Pending)
		s.become(uid, Published)
	}, map[string]int{Transition: 1}},
	{"a DEAD row becomes PUBLISHED by itself", func(s *story) {
		uid := s.poison("k")
		s.publish(uid)
		s.mark(uid)
	}, map[string]int{Transition: 1}},
	{"a row's state is not what its diary ends with", func(s *story) {
		s.row(s.deliver("a", "k")).Status = Dead
	}, map[string]int{Transition: 1}},
	{"a row is PUBLISHED, and the diary knows nothing of it", func(s *story) {
		uid := s.commit("a", "k")
		s.publish(uid)
		s.row(uid).Status = Published
	}, map[string]int{Transition: 1}},
	{"a row is DEAD though the broker would have taken it", func(s *story) {
		s.become(s.commit("a", "k"), Dead)
	}, map[string]int{Causeless: 1}},
	{"an attempt is counted though the broker was only away", func(s *story) {
		uid := s.commit("a", "k")
		s.fail(uid, 1, "connection refused")
		s.publish(uid)
		s.mark(uid)
	}, map[string]int{Causeless: 1}},
	{"a row is marked before the broker has it", func(s *story) {
		uid := s.commit("a", "k")
		s.mark(uid)
		s.publish(uid)
	}, map[string]int{MarkedEarly: 1}},
	{"a delivery has another message id than the row", func(s *story) {
		s.record(s.deliver("a", "k"), 0).MessageID = "another"
	}, map[string]int{OtherID: 1}},
	{"a delivery has no message id", func(s *story) {
		uid := s.deliver("a", "k")
		s.record(uid, 0).MessageID, s.row(uid).MessageID = "", ""
	}, map[string]int{OtherID: 1}},
	{"the second delivery of a purged row has another message id", func(s *story) {
		s.window("kill", 1)
		uid := s.deliver("a", "k")
		s.publish(uid)
		s.record(uid, 1).MessageID = "another"
		s.tick(2 * storyRetention)
		s.remove(uid)
	}, map[string]int{OtherID: 1}},
	{"a delivery has another key", func(s *story) {
		s.record(s.deliver("a", "k"), 0).Key = "other"
	}, map[string]int{Content: 1}},
	{"a delivery has another payload", func(s *story) {
		s.record(s.deliver("a", "k"), 0).Sum++
	}, map[string]int{Content: 1}},
}

// poison is an event that the broker never takes, and that is DEAD for it.
func (s *story) poison(key string) int64 {
	uid := s.commit("a", key)
	s.event(uid).Poison = true
	s.become(uid, Dead)
	return uid
}

func TestCheckFindsEachViolation(t *testing.T) {
	t.Parallel()
	for _, v := range violations {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.deliver("a", "k")
			v.tell(s)
			s.deliver("a", "k")
			expect(t, s, v.want)
		})
	}
}

// clean are histories without anything wrong, however odd.
var clean = []struct {
	name string
	tell func(s *story)
}{
	{"nothing happened", func(*story) {}},
	{"events of several keys, tables and topics are mixed", func(s *story) {
		x, y, z := s.commit("a", "x"), s.commit("b", "y"), s.commit("a", "")
		s.event(y).Table = "outbox_b"
		s.publish(z, y, x)
		s.mark(x, y, z)
	}},
	{"events without a key have no order", func(s *story) {
		x, y := s.commit("a", ""), s.commit("a", "")
		s.publish(y, x)
		s.mark(y, x)
	}},
	{"the marks of a key come in another order than its records", func(s *story) {
		x, y := s.commit("a", "k"), s.commit("a", "k")
		s.publish(x, y)
		s.mark(y, x)
	}},
	{"what was rolled back leaves no trace", func(s *story) {
		s.rollBack("a", "k")
		s.deliver("a", "k")
	}},
	{"a row is purged when its retention is over", func(s *story) {
		uid := s.deliver("a", "k")
		s.tick(storyRetention)
		s.remove(uid)
	}},
	{"a mark that waited for a lock is purged by the time it was made", func(s *story) {
		uid := s.deliver("a", "k")
		s.Changes[len(s.Changes)-1].PublishedAt = s.now.Add(-10 * time.Second)
		s.tick(storyRetention - 9*time.Second)
		s.remove(uid)
	}},
	{"a poisoned event is DEAD, and its key goes on", func(s *story) {
		s.poison("k")
		s.deliver("a", "k")
	}},
	{"a poisoned event fails before it is DEAD", func(s *story) {
		uid := s.commit("a", "k")
		s.event(uid).Poison = true
		s.fail(uid, 1, "too large")
		s.become(uid, Dead)
	}},
	{"an event dies and is retried by command, behind what passed it", func(s *story) {
		s.Rules.Refusing["late"] = true
		x, y := s.commit("late", "k"), s.commit("late", "k")
		s.become(x, Dead)
		s.publish(y)
		s.mark(y)
		s.become(x, Pending)
		s.publish(x)
		s.mark(x)
	}},
	{"attempts are counted for a topic that is missing", func(s *story) {
		s.Rules.Refusing["late"] = true
		x, y := s.commit("late", "k"), s.commit("late", "k")
		s.fail(x, 1, "unknown topic")
		s.fail(x, 2, "unknown topic")
		s.publish(x, y)
		s.mark(x, y)
	}},
	{"what was in a topic that was deleted is gone with it", func(s *story) {
		uid := s.deliver("volatile", "k")
		s.unpublish(uid)
		s.tick(time.Second)
		s.Rules.Recreated["volatile"] = s.now
		s.deliver("volatile", "k")
	}},
	{"a crash repeats what was in flight, in order", func(s *story) {
		s.window("kill", 1)
		x, y := s.commit("a", "k"), s.commit("a", "k")
		s.publish(x, y, x, y)
		s.mark(x, y)
		s.deliver("a", "k")
	}},
}

func TestCheckFindsNothingInACleanHistory(t *testing.T) {
	t.Parallel()
	for _, c := range clean {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.deliver("a", "k")
			c.tell(s)
			s.deliver("a", "k")
			expect(t, s, map[string]int{})
		})
	}
}

func TestCheckFindsWhatWasLostAfterATopicWasMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.Rules.Recreated["volatile"] = s.now
	s.tick(time.Second)
	s.unpublish(s.deliver("volatile", "k"))
	expect(t, s, map[string]int{Lost: 1})
}

func TestVerdictHasTheTotals(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.rollBack("a", "k")
	s.poison("k")
	s.window("kill", 1)
	x, y := s.deliver("a", "k"), s.deliver("a", "other")
	s.publish(x)
	s.unpublish(y)
	s.tick(2 * storyRetention)
	s.remove(x)
	v := expect(t, s, map[string]int{Lost: 1})
	want := Verdict{Events: 4, Committed: 3, RolledBack: 1, Records: 2, DeadRows: 1, Purged: 1}
	if got := (Verdict{Events: v.Events, Committed: v.Committed, RolledBack: v.RolledBack, Records: v.Records, DeadRows: v.DeadRows, Purged: v.Purged}); !equal(got, want) {
		t.Errorf("totals %+v, want %+v", got, want)
	}
	if want := []Tally{{Written: 1}, {Written: 2, Lost: 1, Duplicates: 1}}; !slices.Equal(v.Tallies, want) {
		t.Errorf("tallies %+v, want %+v", v.Tallies, want)
	}
	if got := v.Of(Lost); len(got) != 1 || got[0].Window != 1 || !strings.Contains(got[0].String(), "lost: event 4") {
		t.Errorf("the loss is %v, want that of event 4, in window 1", got)
	}
	if s := v.Summary(); !strings.Contains(s, "1 lost") || !strings.Contains(s, "1 duplicates") || !strings.Contains(s, "1 findings") {
		t.Errorf("summary: %s", s)
	}
}

func equal(a, b Verdict) bool {
	return a.Events == b.Events && a.Committed == b.Committed && a.RolledBack == b.RolledBack && a.Records == b.Records &&
		a.DeadRows == b.DeadRows && a.Purged == b.Purged
}
