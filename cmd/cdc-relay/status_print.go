package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/admin"
	"github.com/cdc-relay/cdc-relay/internal/config"
)

// printStatus shows a status to people. Of errRelay and errDatabase one may be set: that part isn't known.
func (a *app) printStatus(cfg *config.Config, s admin.Status, errRelay, errDatabase error) error {
	var rows [][]string
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if errRelay != nil {
		add("relay", "not running here: %v", errRelay)
	} else {
		addRelay(add, s)
	}
	if errDatabase != nil {
		add("database", "%v", errDatabase)
	}
	if cfg.Replication.Enabled && (errDatabase == nil || errRelay == nil) {
		add("slot", "%s", slotText(s.Slot))
	}
	if err := printTable(a.out, nil, rows); err != nil || len(s.Tables) == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	tables := make([][]string, len(s.Tables))
	for i, t := range s.Tables {
		tables[i] = []string{t.Name, atLeast(t.Pending, t.PendingCapped), seconds(t.OldestPendingAgeSeconds), fmt.Sprintf("~%d", t.PublishedEstimate), atLeast(t.Dead, t.DeadCapped)}
	}
	return printTable(a.out, []string{"TABLE", "PENDING", "OLDEST PENDING", "PUBLISHED", "DEAD"}, tables)
}

// addRelay is what the relay says of itself.
func addRelay(add func(name, format string, args ...any), s admin.Status) {
	leader := "standing by"
	if s.Leader {
		leader = "active for " + ago(s.Now, s.LeaderSince)
	}
	add("relay", "%s, version %s, %s", s.Instance, s.Version, leader)
	add("mode", "%s for %s (%s)", s.Mode, ago(s.Now, s.ModeSince), s.ModeReason)
	if s.Ready {
		add("ready", "yes")
	} else {
		add("ready", "no: %s", strings.Join(s.Reasons, "; "))
	}
	for _, d := range s.Degraded {
		add("degraded", "%s", d)
	}
	switch {
	case !s.Stream.Enabled:
		add("stream", "switched off")
	case s.Stream.Up:
		add("stream", "up, confirmed %s, last message %s ago", s.Stream.ConfirmedLSN, seconds(s.Stream.LastMessageAgeSeconds))
	default:
		add("stream", "down: %s", s.Stream.Reason)
	}
	if s.Sink.Up {
		add("sink", "%s, up", s.Sink.Kind)
	} else {
		add("sink", "%s, down: %s", s.Sink.Kind, s.Sink.Reason)
	}
	add("in flight", "%s, %s; %s", count(int64(s.InFlight.Events), "event", "events"), size(s.InFlight.Bytes), count(int64(s.BlockedKeys), "blocked key", "blocked keys"))
	add("published", "%d since the start, %.1f a second", s.Throughput.PublishedTotal, s.Throughput.RatePerSecond)
}

func slotText(s admin.Slot) string {
	if s.WALStatus == "" {
		return s.Name + ": there is none"
	}
	active := "nobody uses it"
	if s.Active {
		active = "active"
	}
	return fmt.Sprintf("%s: %s, lag %s, retains %s of WAL (%s)", s.Name, active, size(s.LagBytes), size(s.RetainedWALBytes), s.WALStatus)
}

// atLeast words a count that may have stopped at a bound.
func atLeast(n int64, more bool) string {
	return fmt.Sprint(n) + map[bool]string{true: "+"}[more]
}

func seconds(s float64) string { return age(time.Duration(s * float64(time.Second))) }

// ago is how long before now something was.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return age(max(now.Sub(then), 0))
}
