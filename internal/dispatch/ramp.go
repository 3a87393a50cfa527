package dispatch

import (
	"math"
	"time"
)

// The pace after an outage: it doubles ten times over the ramp, from rampFloor events a second to a thousand times that,
// and is unlimited afterwards.
const (
	rampFloor     = 200.0
	rampDoublings = 10.0
)

// ramp limits the pace after an outage, so that consumers aren't flooded with the backlog.
type ramp struct {
	over   time.Duration // 0: no ramp
	began  time.Time     // zero: no limit now
	last   time.Time
	tokens float64
}

func (r *ramp) start(now time.Time) {
	if r.over > 0 {
		r.began, r.last, r.tokens = now, now, 1
	}
}

func (r *ramp) active() bool { return !r.began.IsZero() }

// allow is the number of events, at most want, that may be sent now.
func (r *ramp) allow(now time.Time, want int) int {
	if !r.active() {
		return want
	}
	since := now.Sub(r.began)
	if since >= r.over {
		r.began = time.Time{}
		return want
	}
	rate := rampFloor * math.Exp2(rampDoublings*since.Seconds()/r.over.Seconds())
	// No more than a tenth of a second's worth is saved up: a pause must not turn into a burst.
	r.tokens = min(r.tokens+rate*now.Sub(r.last).Seconds(), max(rate/10, 1))
	r.last = now
	return min(want, int(r.tokens))
}

func (r *ramp) spend(n int) {
	if r.active() {
		r.tokens -= float64(n)
	}
}
