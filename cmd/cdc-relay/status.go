package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/admin"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

const (
	askTimeout = 3 * time.Second // for the relay's answer
	watchPause = 2 * time.Second
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show mode, leader, lag, rows per state, the oldest PENDING row and the sink", Args: cobra.NoArgs,
		Long: `Show what the relay on this machine says of itself (at http.listen), and what the database says of the tables and the
slot. Without a relay here the database's part is shown.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if !watch {
				return a.status(cmd.Context(), cfg, asJSON)
			}
			return a.watchStatus(cmd.Context(), cfg, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as /status answers")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds, until interrupted")
	return cmd
}

// watchStatus shows the status again and again. What fails may be there the next time.
func (a *app) watchStatus(ctx context.Context, cfg *config.Config, asJSON bool) error {
	for {
		if isTerminal(a.out) && !asJSON {
			fmt.Fprint(a.out, "\x1b[H\x1b[2J")
		}
		if err := a.status(ctx, cfg, asJSON); err != nil && ctx.Err() == nil {
			a.complain("%v", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// status shows what is known: it fails only when nobody answers.
func (a *app) status(ctx context.Context, cfg *config.Config, asJSON bool) error {
	s, errRelay := askRelay(ctx, cfg.HTTP.Listen)
	if errRelay != nil {
		s = admin.Status{
			Now: time.Now(), Sink: admin.Sink{Kind: cfg.Sink.Kind}, Stream: admin.Stream{Enabled: cfg.Replication.Enabled},
			Reasons: []string{"the relay is not running here: " + errRelay.Error()},
		}
	}
	errDatabase := askDatabase(ctx, cfg, &s)
	if errRelay != nil && errDatabase != nil {
		return errors.Join(errDatabase, fmt.Errorf("ask the relay: %w", errRelay))
	}
	if asJSON {
		return printJSON(a.out, s)
	}
	return a.printStatus(cfg, s, errRelay, errDatabase)
}

// askRelay gets the status of the relay that listens at the address.
func askRelay(ctx context.Context, listen string) (s admin.Status, err error) {
	address, err := localAddress(listen)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return s, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy: it is this machine
	resp, err := client.Do(req)
	if err != nil {
		return s, fmt.Errorf("nobody answers at %s (http.listen)", address)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return admin.Status{}, fmt.Errorf("what answers at %s (http.listen) is no relay: %w", address, err)
	}
	return s, nil
}

// localAddress is where to reach what listens on this machine.
func localAddress(listen string) (string, error) {
	if listen == "" || listen == "off" {
		return "", errors.New("http.listen is switched off, so it can't be asked")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", errors.New("http.listen has port 0, so it can be anywhere")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// askDatabase replaces the figures about tables and slot by fresh ones.
func askDatabase(ctx context.Context, cfg *config.Config, s *admin.Status) error {
	pool, err := openPool(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	outboxes, err := resolve(ctx, pool, cfg)
	if err != nil {
		return err
	}
	metrics := lifecycle.NewMetrics(prometheus.NewRegistry())
	tables := make([]admin.Table, len(outboxes))
	for i, o := range outboxes {
		found, err := lifecycle.NewSampler(pool, outboxes[i:i+1], metrics).Sample(ctx)
		if err != nil {
			return err
		}
		tables[i] = admin.Table{Name: o.String(), OldestPendingAgeSeconds: found.OldestPendingSeconds, PublishedEstimate: found.Tables[0].Published}
		tables[i].Pending, tables[i].PendingCapped = capped(found.PendingRows)
		tables[i].Dead, tables[i].DeadCapped = capped(found.DeadRows)
	}
	s.Tables = tables
	if !cfg.Replication.Enabled {
		return nil
	}
	f, err := replication.SampleSlot(ctx, pool, cfg.Replication.Slot, nil)
	if err != nil {
		return err
	}
	s.Slot = admin.Slot{Name: cfg.Replication.Slot, Active: f.Active, LagBytes: f.LagBytes, RetainedWALBytes: f.RetainedBytes}
	if f.Exists {
		s.Slot.WALStatus = f.WALStatus
	}
	return nil
}

// capped takes a count of the Sampler, which stops at one more than it promises.
func capped(n int64) (int64, bool) { return min(n, 10_000), n > 10_000 }
