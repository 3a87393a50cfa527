package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the relay until it is told to stop", Args: cobra.NoArgs,
		Long: `Run the relay. SIGTERM or SIGINT stops it in good order: what is in flight is awaited (shutdown_timeout) and marked. A second
signal ends it at once; nothing is lost by that, but what was sent and not yet marked is sent again.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
}

func (a *app) serve(ctx context.Context) error {
	o, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	if o.cfg.Wake.Kind != "none" {
		return notBuilt("wake.kind", o.cfg.Wake.Kind)
	}
	log := newLog(a.errOut, o.cfg.Log)
	s, err := openSink(o.cfg, a.out, log)
	if err != nil {
		return err
	}
	defer closeSink(s, log)
	p, err := wire(o, s, log)
	if err != nil {
		return err
	}
	b := readBuild()
	log.Info("cdc-relay is starting", "version", b.Version, "tables", fmt.Sprint(o.outboxes), "sink", o.cfg.Sink.Kind, "http", o.cfg.HTTP.Listen)
	defer log.Info("cdc-relay has stopped")
	return p.run(ctx)
}

// newLog is the relay's own log.
func newLog(out io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // one of the words that config allows
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
