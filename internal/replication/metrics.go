package replication

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// slotStatuses are the values of wal_status, and missing when there is no slot.
var slotStatuses = [...]string{"reserved", "extended", "unreserved", "lost", "missing"}

// Metrics are the figures of the stream and of its slot. The methods that change them work on nil.
type Metrics struct {
	progress progress

	lag, retained, active prometheus.Gauge
	status                *prometheus.GaugeVec
	recreatedTotal        prometheus.Counter
	reconnectsTotal       prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "cdc_relay", Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "cdc_relay", Name: name, Help: help})
	}
	m := &Metrics{
		lag:      gauge("slot_lag_bytes", "WAL between the server's current position and what the stream has confirmed."),
		retained: gauge("slot_retained_wal_bytes", "WAL that the server keeps because of the slot."),
		active:   gauge("slot_active", "1 while a connection uses the slot."),
		status: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "cdc_relay", Name: "slot_wal_status",
			Help: "1 for the slot's wal_status: reserved, extended, unreserved, lost; missing without a slot."}, []string{"status"}),
		recreatedTotal:  counter("slot_recreated_total", "Slots that were created in place of one that was lost, invalidated or unusable."),
		reconnectsTotal: counter("stream_reconnects_total", "Streams that were started after the first."),
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cdc_relay", Name: "stream_last_message_age_seconds",
		Help: "Time since the server's last message on the replication connection; 0 while this instance doesn't use one."},
		func() float64 { return m.progress.age(time.Now()).Seconds() })
	reg.MustRegister(m.lag, m.retained, m.active, m.status, m.recreatedTotal, m.reconnectsTotal, age)
	return m
}

func (m *Metrics) recreated() {
	if m != nil {
		m.recreatedTotal.Inc()
	}
}

func (m *Metrics) reconnected() {
	if m != nil {
		m.reconnectsTotal.Inc()
	}
}

func (m *Metrics) sampled(f SlotFigures) {
	if m == nil {
		return
	}
	m.lag.Set(float64(f.LagBytes))
	m.retained.Set(float64(f.RetainedBytes))
	m.active.Set(boolValue(f.Active))
	for _, s := range slotStatuses {
		m.status.WithLabelValues(s).Set(boolValue(s == f.WALStatus))
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
