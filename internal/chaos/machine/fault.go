package machine

import (
	"context"
	"math/rand/v2"
	"time"
)

// fault is one way to break things. inject breaks, waits, and mends; what it draws from rng is all that differs from one
// time to the next.
type fault struct {
	kind   string
	inject func(ctx context.Context, w *world, rng *rand.Rand) error
	// crash: it is the end of a process, which may repeat what was in flight. Of the others, those that take the lease or
	// the broker away may too, and the relay's log tells when they did.
	crash bool
	// alone: it can't be one of two at once.
	alone bool
	// long: it takes so long that a short run leaves it out.
	long bool
	// fit says whether the run has what it needs; nil: always.
	fit func(w *world) bool
}

// catalogue is all faults.
func catalogue() []fault {
	return append(append(append(relayFaults(), postgresFaults()...), networkFaults()...), kafkaFaults()...)
}

// fits are the faults that the run can inject and wants.
func (w *world) fits() (fit []fault) {
	wanted := map[string]bool{}
	for _, k := range w.options.Kinds {
		wanted[k] = true
	}
	for _, f := range catalogue() {
		if (len(wanted) == 0 || wanted[f.kind]) && (f.fit == nil || f.fit(w)) {
			fit = append(fit, f)
		}
	}
	return fit
}

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

func several(w *world) bool   { return w.options.Instances > 1 }
func clustered(w *world) bool { return w.bed.kafka.Nodes() > 1 }
func skewable(w *world) bool  { return w.options.Skewed != "" }

// Kinds are the names of all faults.
func Kinds() (kinds []string) {
	for _, f := range catalogue() {
		kinds = append(kinds, f.kind)
	}
	return kinds
}
