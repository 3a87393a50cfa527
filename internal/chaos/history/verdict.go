package history

import (
	"fmt"
	"time"
)

// The kinds of findings.
const (
	Lost        = "lost"          // committed, not DEAD, and not in its topic
	Phantom     = "phantom"       // rolled back or never written, and published
	Unsettled   = "unsettled"     // neither PUBLISHED nor DEAD in the end
	OutOfOrder  = "out of order"  // first published before an earlier event of its key
	Duplicates  = "duplicates"    // more than the promise allows
	OtherID     = "message id"    // a delivery has another message id than the row
	Content     = "content"       // a delivery has another key, topic or payload
	MarkedEarly = "marked early"  // PUBLISHED before the broker had it
	Causeless   = "without cause" // DEAD, or an attempt counted, though only the broker was away
	Transition  = "transition"    // a change of state that nothing allows
	RowGone     = "row gone"      // deleted though it was not PUBLISHED for its retention; or a committed row nobody deleted
	Process     = "process"       // the relay crashed, raced, or didn't come back
)

// Finding is one broken promise.
type Finding struct {
	Kind   string
	Window int // the fault it is charged to; -1: none
	Text   string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s", f.Kind, f.Text) }

// Tally is what happened in a window.
type Tally struct {
	Written    int // events committed
	Lost       int
	OutOfOrder int
	Duplicates int
}

// Verdict is the judgement over a history.
type Verdict struct {
	Findings []Finding
	Tallies  []Tally // of each window

	Events, Committed, RolledBack, Records, DeadRows, Purged int
}

// Summary is the totals in a sentence.
func (v *Verdict) Summary() string {
	lost, inverted, again := 0, 0, 0
	for _, t := range v.Tallies {
		lost, inverted, again = lost+t.Lost, inverted+t.OutOfOrder, again+t.Duplicates
	}
	return fmt.Sprintf("%d events were committed and %d rolled back, %d records read: %d lost, %d out of order, %d duplicates, %d DEAD; %d rows were purged meanwhile; %d findings",
		v.Committed, v.RolledBack, v.Records, lost, inverted, again, v.DeadRows, v.Purged, len(v.Findings))
}

// Of are the findings of a kind.
func (v *Verdict) Of(kind string) (of []Finding) {
	for _, f := range v.Findings {
		if f.Kind == kind {
			of = append(of, f)
		}
	}
	return of
}

// windowAt is the last window that had begun at t; before the first one it is the first.
func windowAt(windows []Window, t time.Time) int {
	at := 0
	for i := range windows {
		if windows[i].Began.After(t) {
			break
		}
		at = i
	}
	if len(windows) == 0 {
		return -1
	}
	return at
}
