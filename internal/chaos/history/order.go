package history

import (
	"cmp"
	"slices"
	"strings"
)

// order checks that the first publications of each key of a table follow the order of the writers' commits, which
// serialise a key's transactions. An event that was ever DEAD is left out: it was published, if at all, when somebody
// asked for it. So is one whose first publication may have been deleted with its topic.
func (c *checker) order() {
	type tableKey struct{ table, key string }
	keys := map[tableKey][]int{}
	for i := range c.Events {
		e, f := &c.Events[i], &c.fates[i]
		if e.Committed && e.Key != "" && f.first >= 0 && !f.everDead && !c.vanished(e) {
			k := tableKey{e.Table, e.Key}
			keys[k] = append(keys[k], i)
		}
	}
	for _, of := range keys {
		c.orderOf(of)
	}
}

// orderOf checks one key's events. Within a partition the offset tells which was first; a key may use several topics,
// and between those the time of the append tells, as long as the milliseconds differ.
func (c *checker) orderOf(events []int) {
	type place struct {
		topic     string
		partition int32
	}
	slices.SortFunc(events, func(a, b int) int { return c.compareFirst(a, b) })
	highest := map[place]int{} // the event with the highest Seq so far, in each partition
	overall, group := -1, -1   // the same over all partitions: before this millisecond, and up to now
	for n, i := range events {
		r := c.first(i)
		if n > 0 && !r.At.Equal(c.first(events[n-1]).At) {
			overall = group
		}
		at := place{r.Topic, r.Partition}
		top, ok := highest[at]
		switch {
		case ok && c.Events[top].Seq > c.Events[i].Seq:
			c.late(i, top)
		case overall >= 0 && c.Events[overall].Seq > c.Events[i].Seq:
			c.late(i, overall)
		}
		if !ok || c.Events[i].Seq > c.Events[top].Seq {
			highest[at] = i
		}
		if group < 0 || c.Events[i].Seq > c.Events[group].Seq {
			group = i
		}
	}
}

func (c *checker) first(i int) *Record { return &c.Records[c.fates[i].first] }

// compareFirst orders events by their first publication: by time, and within a partition by offset.
func (c *checker) compareFirst(a, b int) int {
	x, y := c.first(a), c.first(b)
	return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
}

// late notes that an event was first published after a later one of its key.
func (c *checker) late(i, overtook int) {
	r, o := c.first(i), c.first(overtook)
	c.tally(r.At).OutOfOrder++
	c.find(OutOfOrder, r.At, "%s was first published at %s (%s/%d/%d), after number %d at %s (%s/%d/%d)",
		c.name(&c.Events[i]), clock(r.At), r.Topic, r.Partition, r.Offset, c.Events[overtook].Seq, clock(o.At), o.Topic, o.Partition, o.Offset)
}

// bounds holds the duplicates of each window against what the promise allows.
func (c *checker) bounds() {
	for n, w := range c.Windows {
		if d, most := c.out.Tallies[n].Duplicates, w.Repeats*c.Rules.InFlight; d > most {
			c.find(Duplicates, w.Began, "%d events came again during %q at %s; allowed are %d (%d times what is in flight: %s)",
				d, w.Kind, clock(w.Began), most, w.Repeats, strings.Join(w.Why, ", "))
		}
	}
}
