package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Metrics are the figures of dispatch, and of the sink's calls.
type Metrics struct {
	mode      *prometheus.GaugeVec
	received  [2]prometheus.Counter // by path
	published *prometheus.CounterVec
	failures  [4]prometheus.Counter  // by class
	latency   [2]prometheus.Observer // by path
	publish   prometheus.Histogram
	blocked   prometheus.Gauge
	inFlight  prometheus.Gauge
	bytes     prometheus.Gauge
	sinkUp    prometheus.Gauge
	breaker   prometheus.Gauge

	refused, rescued, inversions prometheus.Counter

	acked atomic.Int64 // events, for Published

	mu        sync.Mutex
	maxTopics int
	topics    map[string]*topicCounters
}

// topicCounters count the events of a topic by path.
type topicCounters [2]prometheus.Counter

// otherTopic is the label of topics beyond the bound.
const otherTopic = "other"

// NewMetrics registers the metrics; maxTopics bounds the values of the topic label.
func NewMetrics(reg prometheus.Registerer, maxTopics int) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "cdc_relay_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cdc_relay_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "cdc_relay_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	buckets := []float64{.0002, .0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cdc_relay_commit_to_ack_seconds", Buckets: buckets,
		Help: "Time from the commit (path poll: from created_at) to the broker's acknowledgement.",
	}, []string{"path"})
	publish := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cdc_relay_publish_seconds", Buckets: buckets, Help: "Time of one call of the sink.",
	})
	mode := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cdc_relay_mode", Help: "1 for the mode the relay is in."}, []string{"mode"})
	reg.MustRegister(latency, publish, mode)
	received := counters("events_received_total", "Rows that reached dispatch, by path; a row may come on both.", "path")
	failures := counters("publish_failures_total", "Events that the sink did not acknowledge, by the class of the error.", "class")
	m := &Metrics{
		mode:      mode,
		published: counters("events_published_total", "Events that the broker has acknowledged.", "path", "topic"),
		publish:   publish,
		blocked:   gauge("blocked_keys", "Keys that wait for a retry or for a decision about a DEAD row."),
		inFlight:  gauge("in_flight_events", "Events in dispatch whose outcome is not yet committed in the table."),
		bytes:     gauge("in_flight_bytes", "Memory of the events that wait for the sink or are with it."),
		sinkUp:    gauge("sink_up", "1 while the sink takes events, 0 during an outage."),
		breaker:   gauge("breaker_open", "1 while nothing is sent because the sink is absent."),
		refused:   counter("refused_events_total", "Times that the stream brought more than dispatch could take; the poll brings the rest."),
		rescued: counter("fallback_rescued_total",
			"Rows that the stream should have brought and the poll found. Stays 0 in health."),
		inversions: counter("order_inversions_total",
			"Events acknowledged although an earlier one of their key failed in the same call of the sink."),
		maxTopics: maxTopics, topics: map[string]*topicCounters{},
	}
	for _, p := range []event.Path{event.WAL, event.Poll} {
		m.received[p] = received.WithLabelValues(p.String())
		m.latency[p] = latency.WithLabelValues(p.String())
	}
	for _, c := range []event.Class{event.Retryable, event.Permanent, event.Unavailable, event.NotAttempted} {
		m.failures[c] = failures.WithLabelValues(c.String())
	}
	m.Standby()
	m.sinkUp.Set(1)
	return m
}

// topic returns the counters of a topic, or those of all topics beyond the bound.
func (m *Metrics) topic(name string) *topicCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.topics[name]; c != nil {
		return c
	}
	if len(m.topics) >= m.maxTopics {
		name = otherTopic
		if c := m.topics[name]; c != nil {
			return c
		}
	}
	c := &topicCounters{m.published.WithLabelValues(event.WAL.String(), name), m.published.WithLabelValues(event.Poll.String(), name)}
	m.topics[name] = c
	return c
}

// Published is the number of events that the broker has acknowledged since the process began.
func (m *Metrics) Published() int64 { return m.acked.Load() }

// Standby shows that this instance is not active.
func (m *Metrics) Standby() { m.show(&Status{Mode: Standby, SinkUp: true}) }

func (m *Metrics) showMode(mode Mode) {
	for _, other := range Modes {
		m.mode.WithLabelValues(other.String()).Set(b2f(other == mode))
	}
}

func (m *Metrics) show(s *Status) {
	m.showMode(s.Mode)
	m.sinkUp.Set(b2f(s.SinkUp))
	m.breaker.Set(b2f(!s.SinkUp))
	m.inFlight.Set(float64(s.InFlight))
	m.bytes.Set(float64(s.Bytes))
	m.blocked.Set(float64(s.Blocked))
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
