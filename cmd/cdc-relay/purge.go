package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) purgeCommand() *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use: "purge", Short: "Delete PUBLISHED rows whose retention is over, now", Args: cobra.NoArgs,
		Long: `Delete PUBLISHED rows that are older than lifecycle.retention, and DEAD rows that are older than
lifecycle.dead_retention when that is set. The running relay does the same every lifecycle.purge_interval.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.purge(cmd.Context(), dryRun, asJSON) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "count what would be deleted")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) purge(ctx context.Context, dryRun, asJSON bool) error {
	o, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	purger := lifecycle.NewPurger(lifecycleConfig(o.cfg), o.pool, o.outboxes, lifecycle.NewMetrics(prometheus.NewRegistry()),
		slog.New(slog.NewTextHandler(a.errOut, nil)))
	progress := a.progress()
	n, err := purger.Purge(ctx, dryRun, func(p lifecycle.PurgeProgress) {
		progress("%s: looked at %d rows, %d to purge", p.Table, p.Looked, p.Purged)
	})
	progress("")
	switch {
	case err != nil && n > 0 && !dryRun:
		return fmt.Errorf("%w (%s purged before)", err, count(n, "row", "rows"))
	case err != nil:
		return err
	case asJSON:
		return printJSON(a.out, map[string]any{"rows": n, "dry_run": dryRun})
	case dryRun:
		fmt.Fprintf(a.out, "would purge %s\n", count(n, "row", "rows"))
	default:
		fmt.Fprintf(a.out, "purged %s\n", count(n, "row", "rows"))
	}
	return nil
}

// progress is a function that shows a line on the terminal over the one before; an empty line ends it. It shows nothing
// where no one looks on.
func (a *app) progress() func(format string, args ...any) {
	if !isTerminal(a.errOut) {
		return func(string, ...any) {}
	}
	shown := false
	return func(format string, args ...any) {
		if format != "" || shown {
			fmt.Fprintf(a.errOut, "\r\x1b[K"+format, args...)
			shown = true
		}
	}
}

// lifecycleConfig is the lifecycle package's form of the settings.
func lifecycleConfig(cfg *config.Config) lifecycle.Config {
	l, r := cfg.Lifecycle, cfg.Retry
	return lifecycle.Config{
		MarkBatch: l.MarkBatch, MarkInterval: l.MarkInterval, Retention: l.Retention, DeadRetention: l.DeadRetention,
		PurgeInterval: l.PurgeInterval, PurgeBatch: l.PurgeBatch, StopTimeout: cfg.ShutdownTimeout,
		Retry: lifecycle.Retry{
			MaxAttempts: r.MaxAttempts, Initial: r.Initial, Max: r.Max, Multiplier: r.Multiplier, Jitter: r.Jitter,
		},
	}
}
