package admin

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// growing publishes ten events at each look, and its oldest row is as old as the number of looks.
type growing struct{ looks atomic.Int64 }

func (g *growing) Status(context.Context) Status {
	n := g.looks.Add(1)
	return Status{
		Throughput: Throughput{PublishedTotal: 10 * n},
		Tables:     []Table{{OldestPendingAgeSeconds: 1}, {OldestPendingAgeSeconds: float64(n)}},
	}
}

func TestTheSamplerKeepsTheLastQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{source: &growing{}, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.sample(ctx); close(done) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := len(s.history.samples); n != 7 {
			t.Errorf("%d samples after 30 s", n)
		}
		if r := s.history.rate(time.Now()); math.Abs(r-2) > 1e-9 {
			t.Errorf("rate %v", r)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		rate, oldest := s.history.points()
		if len(oldest) != keptSamples || len(rate) != keptSamples-1 || time.Since(oldest[0].at) > chartSpan {
			t.Errorf("%d and %d points, the oldest %v ago", len(rate), len(oldest), time.Since(oldest[0].at))
		}
		if last := oldest[len(oldest)-1].value; last != 727 || rate[0].value != 2 {
			t.Errorf("last age %v, rate %v", last, rate[0].value)
		}
		cancel()
		<-done
	})
}

func TestTheServerFillsInTheRateThatASourceLeavesOut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &Server{source: &growing{}}
	s.history.add(now.Add(-10*time.Minute), Status{})
	s.history.add(now.Add(-20*time.Second), Status{Throughput: Throughput{PublishedTotal: 1000}})
	s.history.add(now.Add(-10*time.Second), Status{Throughput: Throughput{PublishedTotal: 3000}})
	if r := s.status(t.Context()).Throughput.RatePerSecond; math.Abs(r-200) > 1e-6 {
		t.Errorf("rate %v", r)
	}
}

func TestARateIsNeverNegativeOrInfinite(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var h history
	if r := h.rate(now); r != 0 {
		t.Errorf("without samples: %v", r)
	}
	h.add(now, Status{Throughput: Throughput{PublishedTotal: 5}})
	if r := h.rate(now); r != 0 {
		t.Errorf("of one sample: %v", r)
	}
	h.add(now, Status{Throughput: Throughput{PublishedTotal: 9}})
	if r := h.rate(now); r != 0 {
		t.Errorf("of samples at one time: %v", r)
	}
	h.add(now.Add(time.Second), Status{})
	if r := h.rate(now.Add(time.Second)); r != 0 {
		t.Errorf("of a counter that went back: %v", r)
	}
}

func TestACurveEndsAtTheRightAndHasGaps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(seconds int, v float64) point { return point{now.Add(-time.Duration(seconds) * time.Second), v} }
	path, peak := curve([]point{at(1000, 1), at(900, 10), at(895, 5), at(5, 0), at(0, 10)}, now)
	if want := "M0.0 0.0L5.0 50.0M895.0 100.0L900.0 0.0"; path != want || peak != 10 {
		t.Errorf("%s, peak %v", path, peak)
	}
	if path, _ := curve([]point{at(5, 0), at(0, 0)}, now); path != "M895.0 100.0L900.0 100.0" || strings.Contains(path, "NaN") {
		t.Error(path)
	}
}
