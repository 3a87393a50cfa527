package admin

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// The charts show the last 15 minutes, a sample every 5 seconds.
const (
	sampleEvery = 5 * time.Second
	chartSpan   = 15 * time.Minute
	keptSamples = int(chartSpan/sampleEvery) + 1
	rateSpan    = time.Minute
)

// sample is what the charts remember of a Status.
type sample struct {
	at        time.Time
	published int64
	oldest    float64 // age of the oldest PENDING row of all tables, in seconds
}

// history is the last samples, oldest first. The zero value is empty.
type history struct {
	mu      sync.Mutex
	samples []sample
}

func (h *history) add(at time.Time, st Status) {
	s := sample{at: at, published: st.Throughput.PublishedTotal}
	for _, t := range st.Tables {
		s.oldest = max(s.oldest, t.OldestPendingAgeSeconds)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == keptSamples {
		h.samples = h.samples[:copy(h.samples, h.samples[1:])]
	}
	h.samples = append(h.samples, s)
}

// rate is the mean of events published per second over the samples of the last minute.
func (h *history) rate(now time.Time) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.samples {
		if now.Sub(s.at) <= rateSpan {
			return perSecond(s, h.samples[len(h.samples)-1])
		}
	}
	return 0
}

// perSecond is 0 when the counter went back, which it does when a Source begins anew.
func perSecond(from, to sample) float64 {
	d := to.at.Sub(from.at).Seconds()
	if d <= 0 {
		return 0
	}
	return max(0, float64(to.published-from.published)/d)
}

// point is a value of a chart.
type point struct {
	at    time.Time
	value float64
}

// points are the two curves: events per second between samples, and the oldest age.
func (h *history) points() (rate, oldest []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.samples {
		oldest = append(oldest, point{s.at, s.oldest})
		if i > 0 {
			rate = append(rate, point{s.at, perSecond(h.samples[i-1], s)})
		}
	}
	return rate, oldest
}

// The charts' coordinates: a unit of x is a second.
const (
	chartWidth  = int(chartSpan / time.Second)
	chartHeight = 100
)

// curve draws points as the path of an SVG. It leaves a gap where samples are missing, as after a suspended process.
func curve(points []point, now time.Time) (path string, peak float64) {
	for _, p := range points {
		peak = max(peak, p.value)
	}
	var b strings.Builder
	var last time.Time
	for _, p := range points {
		x := float64(chartWidth) - now.Sub(p.at).Seconds()
		if x < 0 {
			continue
		}
		pen := 'L'
		if p.at.Sub(last) > 3*sampleEvery {
			pen = 'M'
		}
		last = p.at
		y := float64(chartHeight)
		if peak > 0 {
			y -= p.value / peak * chartHeight
		}
		fmt.Fprintf(&b, "%c%.1f %.1f", pen, x, y)
	}
	return b.String(), peak
}
