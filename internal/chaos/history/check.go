package history

import (
	"cmp"
	"fmt"
	"time"
)

// fate is what the witnesses say of one event, gathered.
type fate struct {
	row       int // index of its row; -1: none
	first     int // index of its first record; -1: none
	everDead  bool
	published time.Time // when it was first marked; zero: never
	retained  time.Time // since when its retention counts
	state     string    // the last one of the diary; empty: the diary has nothing
	deleted   bool
}

type checker struct {
	*History
	at    map[int64]int // index of an event by its UID
	fates []fate
	out   Verdict
}

// Check holds the witnesses against each other.
func Check(h *History) *Verdict {
	c := &checker{History: h, at: make(map[int64]int, len(h.Events)), fates: make([]fate, len(h.Events))}
	c.out.Tallies = make([]Tally, len(h.Windows))
	c.gatherEvents()
	c.gatherRows()
	c.gatherChanges()
	c.gatherRecords()
	for i := range h.Events {
		c.judge(i)
	}
	c.order()
	c.bounds()
	return &c.out
}

func (c *checker) find(kind string, when time.Time, format string, args ...any) {
	c.out.Findings = append(c.out.Findings, Finding{kind, windowAt(c.Windows, when), fmt.Sprintf(format, args...)})
}

// tally is the tally of the window at t, for counting.
func (c *checker) tally(t time.Time) *Tally {
	if n := windowAt(c.Windows, t); n >= 0 {
		return &c.out.Tallies[n]
	}
	return &Tally{}
}

func (c *checker) gatherEvents() {
	c.out.Events = len(c.Events)
	for i := range c.Events {
		e := &c.Events[i]
		c.at[e.UID] = i
		c.fates[i] = fate{row: -1, first: -1}
		if e.Committed {
			c.out.Committed++
			c.tally(e.At).Written++
		} else {
			c.out.RolledBack++
		}
	}
}

func (c *checker) gatherRows() {
	for r := range c.Rows {
		i, ok := c.at[c.Rows[r].UID]
		if !ok {
			c.find(RowGone, time.Time{}, "row %d has no writer", c.Rows[r].ID)
			continue
		}
		c.fates[i].row = r
		if c.Rows[r].Status == Dead {
			c.out.DeadRows++
		}
	}
}

// gatherChanges follows the diary: which changes of state there are, and when.
func (c *checker) gatherChanges() {
	for n := range c.Changes {
		ch := &c.Changes[n]
		i, ok := c.at[ch.UID]
		if !ok {
			continue // told of by the row or the record
		}
		e, f := &c.Events[i], &c.fates[i]
		switch {
		case ch.From == Pending && ch.To == Published:
			if f.published.IsZero() {
				f.published, f.retained = ch.At, ch.At
				if !ch.PublishedAt.IsZero() {
					f.retained = ch.PublishedAt
				}
			}
		case ch.From == Pending && ch.To == Dead:
			f.everDead = true
		case ch.From == Dead && ch.To == Pending: // an operator's retry
		case ch.From == ch.To: // an attempt
		case ch.From == Published && ch.To == Gone:
			c.out.Purged++
			if age := ch.At.Sub(f.retained); f.published.IsZero() || age < c.Rules.Retention {
				c.find(RowGone, ch.At, "%s was deleted %v after it was marked PUBLISHED, its retention is %v", c.name(e), age, c.Rules.Retention)
			}
		default:
			c.find(Transition, ch.At, "%s went from %s to %s", c.name(e), ch.From, ch.To)
		}
		if (ch.Attempted || ch.To == Dead) && !e.Poison && !c.Rules.Refusing[e.Topic] {
			c.find(Causeless, ch.At, "%s: attempt %d, %s: %s", c.name(e), ch.Attempts, ch.To, ch.Error)
		}
		f.state, f.deleted = ch.To, ch.To == Gone
	}
}

func (c *checker) gatherRecords() {
	c.out.Records = len(c.Records)
	for n := range c.Records {
		r := &c.Records[n]
		i, ok := c.at[r.UID]
		if !ok {
			c.find(Phantom, r.At, "topic %s has an event that nobody wrote (%d)", r.Topic, r.UID)
			continue
		}
		e, f := &c.Events[i], &c.fates[i]
		switch {
		case !e.Committed:
			c.find(Phantom, r.At, "%s was rolled back, and is in topic %s at partition %d, offset %d", c.name(e), r.Topic, r.Partition, r.Offset)
		case r.Topic != e.Topic || r.Key != e.Key || r.Sum != e.Sum:
			c.find(Content, r.At, "%s was written for topic %s with payload %08x, and is in %s with key %q and payload %08x",
				c.name(e), e.Topic, e.Sum, r.Topic, r.Key, r.Sum)
		}
		c.identity(e, f, r)
		if f.first < 0 {
			f.first = n
			continue
		}
		again := r
		if before(r, &c.Records[f.first]) {
			again, f.first = &c.Records[f.first], n
		}
		c.tally(again.At).Duplicates++
	}
}

// identity holds a record's message id against the row's, or the first record's when the row was purged.
func (c *checker) identity(e *Event, f *fate, r *Record) {
	want := r.MessageID
	if f.row >= 0 {
		want = c.Rows[f.row].MessageID
	} else if f.first >= 0 {
		want = c.Records[f.first].MessageID
	}
	if r.MessageID != want || want == "" {
		c.find(OtherID, r.At, "%s has message id %q and came with %q", c.name(e), want, r.MessageID)
	}
}

// before is the order in which records were appended, as far as it is known: within a partition by offset, else by time.
func before(a, b *Record) bool {
	if a.Topic == b.Topic && a.Partition == b.Partition {
		return a.Offset < b.Offset
	}
	return a.At.Before(b.At)
}

// judge decides about one event.
func (c *checker) judge(i int) {
	e, f := &c.Events[i], &c.fates[i]
	switch {
	case !e.Committed:
		if f.row >= 0 {
			c.find(RowGone, e.At, "%s is in the table, though its writer takes it for rolled back", c.name(e))
		}
		return
	case f.row < 0 && !f.deleted:
		c.find(RowGone, e.At, "%s is not in the table, and nobody deleted it", c.name(e))
		return
	}
	state := Published
	if f.row >= 0 {
		state = c.Rows[f.row].Status
		if was := cmp.Or(f.state, Pending); was != state {
			c.find(Transition, e.At, "%s is %s in the end, and the last its diary says is %s", c.name(e), state, was)
		}
	}
	switch {
	case state == Pending:
		c.find(Unsettled, e.At, "%s is PENDING in the end", c.name(e))
	case state == Published && f.first < 0 && !c.vanished(e):
		c.tally(e.At).Lost++
		c.find(Lost, e.At, "%s is %s and was not seen in topic %s", c.name(e), state, e.Topic)
	case state == Published && f.first >= 0 && !f.published.IsZero() && f.published.Before(c.Records[f.first].At) && !c.vanished(e):
		c.find(MarkedEarly, f.published, "%s was marked %v before the broker had it", c.name(e), c.Records[f.first].At.Sub(f.published))
	}
}

// vanished says that the event may have been published to a topic that was deleted afterwards.
func (c *checker) vanished(e *Event) bool {
	again, ok := c.Rules.Recreated[e.Topic]
	return ok && e.At.Before(again)
}

func (c *checker) name(e *Event) string {
	return fmt.Sprintf("event %d (%s, key %q, number %d, committed at %s)", e.UID, e.Table, e.Key, e.Seq, clock(e.At))
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
