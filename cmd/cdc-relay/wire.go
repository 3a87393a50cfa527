package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/admin"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/fallbackpoll"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// closeSinkWithin bounds the end of the broker's client, which has nothing in flight by then.
const closeSinkWithin = 5 * time.Second

// registerAll registers every metric of the relay.
func registerAll(reg prometheus.Registerer, maxTopics int) *relay.Metrics {
	b := readBuild()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cdc_relay_build_info", Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
	}, func() float64 { return 1 }))
	return relay.NewMetrics(reg, maxTopics)
}

// parts are what runs together in one process.
type parts struct {
	relay   *relay.Relay
	alerter *lifecycle.Alerter
	admin   *admin.Server
}

// wire joins the parts in the direction of an event's way, from the table to the broker. The caller owns the opened
// database and the sink.
func wire(o *opened, s sink.Sink, log *slog.Logger) (*parts, error) {
	cfg := o.cfg
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := registerAll(reg, cfg.Metrics.MaxTopics)

	dead := lifecycle.NewDead(o.pool, o.outboxes)
	dead.Untraced = func(t lifecycle.Trail) {
		log.Warn("no audit trail of what is done to DEAD rows over http", "problem", t.Problem, "remedy", t.Remedy)
	}
	alerts := lifecycle.AlertConfig{URL: cfg.Alert.Webhook.URL, Template: cfg.Alert.Webhook.Template, RepeatInterval: cfg.Alert.RepeatInterval}
	if err := alerts.Validate(); err != nil {
		return nil, err
	}
	alerter := lifecycle.NewAlerter(alerts, dead.Count, metrics.Lifecycle, log)
	r := relay.New(relayConfig(cfg), o.pool, o.outboxes, s, alerter, metrics, log)
	src := &source{relay: r, cfg: cfg}
	server, err := admin.New(admin.Config{Listen: cfg.HTTP.Listen, TokenFile: cfg.HTTP.TokenFile}, src, reg, deadActions{dead}, log)
	if err != nil {
		return nil, err
	}
	return &parts{relay: r, alerter: alerter, admin: server}, nil
}

// run runs the parts until ctx ends or one of them fails. The endpoint answers until the relay has stopped.
func (p *parts) run(ctx context.Context) error {
	side, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.admin.Run(side) })
	g.Go(func() error { return p.alerter.Run(side) })
	g.Go(func() error {
		defer stop()
		return p.relay.Run(gctx)
	})
	return g.Wait()
}

// relayConfig is the relay's form of the settings.
func relayConfig(cfg *config.Config) relay.Config {
	return relay.Config{
		DirectDSN:   directDSN(cfg),
		Stream:      cfg.Replication.Enabled,
		Replication: replicationConfig(cfg),
		Poll:        fallbackpoll.Config{Batch: cfg.FallbackPoll.Batch},
		Dispatch: dispatch.Config{
			Lanes: cfg.Dispatch.Lanes, MaxInFlight: cfg.Dispatch.MaxInFlight, MaxInFlightBytes: int(cfg.Dispatch.MaxInFlightBytes),
			PageRows: cfg.FallbackPoll.Batch, RampUp: cfg.Dispatch.RampUp, SettleDelay: cfg.Replication.SettleDelay,
			Interval: cfg.FallbackPoll.Interval, Unordered: cfg.Ordering.Mode == "none", BlockOnDead: cfg.Ordering.OnDead == "block",
		},
		Lifecycle:   lifecycleConfig(cfg),
		StopTimeout: cfg.ShutdownTimeout,
	}
}

// closeSink ends the broker's client.
func closeSink(s sink.Sink, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeSinkWithin)
	defer cancel()
	if err := s.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		log.Warn("close the sink", "error", err)
	}
}
