package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// demonstration is what the demo is asked for.
type demonstration struct {
	length time.Duration // 0: until interrupted
	rate   int           // orders a second
	listen string
}

func (a *app) demoCommand() *cobra.Command {
	var d demonstration
	cmd := &cobra.Command{
		Use: "demo", Short: "Show it: a throwaway Postgres, a small shop that writes orders, the relay and its status page", Args: cobra.NoArgs,
		Long: `Start a throwaway Postgres, make an outbox in it, let a small shop write orders with their events (some transactions are rolled
back), and deliver the events to stdout. The status page is served meanwhile. In the end the books are compared, and everything
is removed. Postgres is taken from PATH or /usr/lib/postgresql; on Debian and Ubuntu it is installed when run as root.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.rate < 1 || d.rate > 10_000 {
				return usagef("--rate must be between 1 and 10000")
			}
			return a.demo(cmd.Context(), d)
		},
	}
	cmd.Flags().DurationVar(&d.length, "for", 20*time.Second, "how long the shop is open; 0: until interrupted")
	cmd.Flags().IntVar(&d.rate, "rate", 5, "orders a second")
	cmd.Flags().StringVar(&d.listen, "http", "127.0.0.1:9180", "`address` of the status page")
	return cmd
}

// demo tells on stderr what happens; stdout has nothing but the events.
func (a *app) demo(ctx context.Context, d demonstration) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(a.errOut, format+"\n", args...) }
	say("starting a throwaway Postgres ...")
	cluster, err := pgtest.StartCluster(ctx, pgtest.Options{Install: true, Out: a.errOut})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := cluster.Close(); err == nil {
			err = closeErr
		}
	}()
	b := *a
	b.configPath, b.env = "", demoEnv(a.env, cluster, d.listen)
	b.out = io.Discard // what init tells
	cfg, err := b.config()
	if err != nil {
		return err
	}
	if err := b.initialise(ctx, "json"); err != nil {
		return err
	}
	o, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	shop, err := openShop(ctx, cluster.DSN("postgres"), d.rate)
	if err != nil {
		return err
	}
	defer shop.close()
	log := newLog(a.errOut, config.Log{Level: "warn", Format: cfg.Log.Format})
	s, err := openSink(cfg, a.out, log)
	if err != nil {
		return err
	}
	defer closeSink(s, log)
	seen := newWitness(s)
	p, err := wire(o, seen, log)
	if err != nil {
		return err
	}
	say("Postgres %s on %s, outbox and slot are made", cluster.ServerVersion(), strings.TrimPrefix(cluster.DSN("postgres"), "postgres://"))
	say("status page: http://%s", p.admin.Addr())
	say("the shop writes %d orders a second, each with its event in one transaction; one in ten is rolled back\n", d.rate)
	if err := d.watch(ctx, p, shop, seen, say); err != nil {
		return err
	}
	return d.compare(context.WithoutCancel(ctx), o, shop, seen, say)
}

// demoEnv is the environment without any setting of the relay, but with the demo's own.
func demoEnv(env []string, cluster *pgtest.Cluster, listen string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "CDC_RELAY_") {
			out = append(out, kv)
		}
	}
	return append(out, "CDC_RELAY_POSTGRES_DSN="+cluster.DSN("postgres"), "CDC_RELAY_SINK_KIND=stdout", "CDC_RELAY_HTTP_LISTEN="+listen)
}

// watch runs relay and shop until the time is over, and then lets the relay finish.
func (d demonstration) watch(ctx context.Context, p *parts, shop *shop, seen *witness, say func(string, ...any)) error {
	open, shut := context.WithCancel(ctx)
	defer shut()
	if d.length > 0 {
		open, shut = context.WithTimeout(open, d.length)
		defer shut()
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	var relayErr, shopErr error
	wg.Go(func() {
		relayErr = p.run(running)
		shut()
	})
	wg.Go(func() {
		shopErr = shop.run(open)
		shut()
	})
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for open.Err() == nil {
		select {
		case <-open.Done():
		case <-tick.C:
			r, n := p.relay.Status(), seen.latency()
			say("-- %-8s %4d committed, %4d delivered, commit to delivered: p50 %s, p99 %s", r.Dispatch.Mode, shop.committed.Load(), n.delivered, n.p50, n.p99)
		}
	}
	// What was committed a moment ago is on its way.
	for end := time.Now().Add(15 * time.Second); seen.latency().delivered < shop.committed.Load() && time.Now().Before(end) && relayErr == nil; {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	wg.Wait()
	if relayErr != nil {
		return relayErr
	}
	return shopErr
}

// compare holds what the shop wrote against what came out and what the table says.
func (d demonstration) compare(ctx context.Context, o *opened, shop *shop, seen *witness, say func(string, ...any)) error {
	n := seen.latency()
	var published, other int64
	err := o.pool.QueryRow(ctx, "SELECT count(*) FILTER (WHERE status = 'PUBLISHED'), count(*) FILTER (WHERE status <> 'PUBLISHED') FROM public.outbox").Scan(&published, &other)
	if err != nil {
		return fmt.Errorf("count the outbox: %w", err)
	}
	committed := shop.committed.Load()
	say("\norders committed          %6d", committed)
	say("orders rolled back        %6d  (their events must not come out)", shop.rolledBack.Load())
	say("events delivered          %6d  (%d duplicates)", n.delivered, n.duplicates)
	say("rows PUBLISHED            %6d", published)
	say("commit to delivered       p50 %s, p99 %s, max %s", n.p50, n.p99, n.max)
	if n.delivered != committed || published != committed || other != 0 || n.duplicates != 0 {
		return fmt.Errorf("the books don't agree: %d orders, %d events, %d rows PUBLISHED, %d rows not", committed, n.delivered, published, other)
	}
	say("\nnothing lost, nothing twice, nothing that was rolled back. Everything is removed again.")
	return nil
}
