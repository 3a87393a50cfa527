package lifecycle

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the package's metrics.
type Metrics struct {
	dead        *prometheus.CounterVec // by reason
	marked      prometheus.Counter
	markSeconds prometheus.Histogram
	markRetries prometheus.Counter
	gone        prometheus.Counter
	purged      prometheus.Counter
	alerts      *prometheus.CounterVec // by result

	pending       prometheus.Gauge
	oldestPending prometheus.Gauge
	deadRows      prometheus.Gauge
	deadTuples    prometheus.Gauge
	oldestXmin    prometheus.Gauge
}

// NewMetrics registers the package's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "cdc_relay_" + name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cdc_relay_" + name, Help: help}, []string{label})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "cdc_relay_" + name, Help: help})
	}
	m := &Metrics{
		dead:   counters("events_dead_total", "Rows that became DEAD, by reason.", "reason"),
		marked: counter("marked_rows_total", "Rows marked PUBLISHED, or deleted as published."),
		markSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cdc_relay_mark_seconds", Help: "Duration of one statement that marks rows.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}),
		markRetries:   counter("mark_retries_total", "Rows whose outcome found no row and is tried again."),
		gone:          counter("gone_rows_total", "Rows in flight that somebody else deleted or gave another status."),
		purged:        counter("purged_rows_total", "Rows deleted because their retention was over."),
		alerts:        counters("alerts_sent_total", "Alerts sent to the webhook, by result (ok, error).", "result"),
		pending:       gauge("pending_rows", "PENDING rows; each table is counted to 10001."),
		oldestPending: gauge("oldest_pending_age_seconds", "Age of the oldest PENDING row, by the database's clock; 0 without one."),
		deadRows:      gauge("dead_rows", "DEAD rows; each table is counted to 10001."),
		deadTuples:    gauge("outbox_dead_tuples", "Dead tuples in the outbox tables, as the statistics estimate them."),
		oldestXmin:    gauge("oldest_xmin_age_seconds", "Age of the oldest transaction that holds back vacuum, as far as the relay's role may see it."),
	}
	reg.MustRegister(m.dead, m.marked, m.markSeconds, m.markRetries, m.gone, m.purged, m.alerts,
		m.pending, m.oldestPending, m.deadRows, m.deadTuples, m.oldestXmin)
	for _, result := range []string{"ok", "error"} {
		m.alerts.WithLabelValues(result)
	}
	return m
}
