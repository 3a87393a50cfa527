package machine

import (
	"io"
	"os"
	"time"
)

// Options say what a run is like.
type Options struct {
	Seed      uint64
	For       time.Duration // faults are injected for so long
	Rate      int           // rows a second that the writers aim at (400)
	Instances int           // of the relay (2)
	Kinds     []string      // of faults; empty: all that the bed is fit for
	Pairs     float64       // the part of the faults that meet another one (0)
	Settle    time.Duration // bounds the wait, after the last fault, until no row is PENDING (2m)
	Binary    string        // the relay
	// Skewed is the relay with a clock that is off by CHAOS_CLOCK_SKEW; empty: none, and no fault of clocks.
	Skewed string
	Dir    string    // gets the logs, and the history when there is a finding
	Out    io.Writer // gets a line for each fault
}

// The settings of the relay that the judgement depends on.
const (
	maxInFlight = 3000
	markBatch   = 500
	retention   = 15 * time.Second
	sinkTimeout = 3 * time.Second

	// inFlight is what a crash may repeat: what was in flight, and one batch of marks.
	inFlight = maxInFlight + markBatch
)

func (o Options) withDefaults() (Options, error) {
	if o.Rate == 0 {
		o.Rate = 400
	}
	if o.Instances == 0 {
		o.Instances = 2
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Minute
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o, os.MkdirAll(o.Dir, 0o755)
}
