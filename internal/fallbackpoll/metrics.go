package fallbackpoll

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the package's metrics.
type Metrics struct {
	passes  prometheus.Counter
	seconds prometheus.Histogram
}

// NewMetrics registers the package's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		passes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cdc_relay_fallback_polls_total",
			Help: "Passes begun over the PENDING rows.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cdc_relay_fallback_poll_seconds",
			Help:    "Duration of one page query of the fallback poll.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}),
	}
	reg.MustRegister(m.passes, m.seconds)
	return m
}
