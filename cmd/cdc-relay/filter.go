package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

// rowFilter is the flags that choose rows, for the commands that act on them.
type rowFilter struct {
	filter    lifecycle.Filter
	key       string
	olderThan string
	since     string
	until     string
	all       bool

	cmd *cobra.Command
}

// flags adds the filter's flags to a command. state is what the rows are: DEAD or PUBLISHED.
func (f *rowFilter) flags(cmd *cobra.Command, state string) {
	f.cmd = cmd
	fl := cmd.Flags()
	fl.StringVar(&f.filter.Table, "table", "", "only rows of this outbox `TABLE`")
	fl.StringVar(&f.filter.Topic, "topic", "", "only rows for this `TOPIC`")
	fl.StringVar(&f.key, "key", "", "only rows with this `KEY`; an empty one is a key too")
	fl.StringVar(&f.filter.EventType, "type", "", "only rows with this event `TYPE`")
	fl.StringVar(&f.olderThan, "older-than", "", "only rows that have been "+state+" for this `DURATION`, such as 30m or 7d")
	fl.StringVar(&f.since, "since", "", "only rows that became "+state+" since this `TIME` (2006-01-02T15:04:05Z), or within this duration (2h)")
	fl.StringVar(&f.until, "until", "", "only rows that became "+state+" before this `TIME`, or longer ago than this duration")
}

// errorFlags adds the flags for the reason of death.
func (f *rowFilter) errorFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.filter.ErrorClass, "error-class", "", "only rows whose last error is of this `CLASS`: its first word, such as too_large")
	cmd.Flags().StringVar(&f.filter.ErrorContains, "error", "", "only rows whose last error contains this `TEXT`, in any case")
}

// allFlag adds the flag that says that no filter is meant to be one.
func (f *rowFilter) allFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.all, "all", false, "act on all rows, when neither ids nor a filter are given")
}

// read completes the filter from the flags and the ids.
func (f *rowFilter) read(ids []string) (lifecycle.Filter, error) {
	out := f.filter
	out.IDs = ids
	if f.cmd.Flags().Changed("key") {
		out.Key = &f.key
	}
	if f.olderThan != "" {
		d, err := config.ParseDuration(f.olderThan)
		if err != nil || d <= 0 {
			return out, usagef("--older-than must be a duration with its unit, such as 30m, 4h or 7d, not %q", f.olderThan)
		}
		out.OlderThan = d
	}
	var err error
	if f.since != "" {
		if out.Since, err = parseTime("--since", f.since, time.Now()); err != nil {
			return out, err
		}
	}
	if f.until != "" {
		if out.Until, err = parseTime("--until", f.until, time.Now()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// parseTime reads a time, or how long ago it was.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("%s must be a time such as 2006-01-02T15:04:05Z or a duration such as 2h, not %q", flag, text)
}

// mustChoose refuses to act on everything by accident.
func (f *rowFilter) mustChoose(chosen lifecycle.Filter) error {
	none := chosen.Empty()
	switch {
	case none && !f.all:
		return usagef("say which rows: ids, a filter, or --all")
	case !none && f.all:
		return usagef("--all goes with neither ids nor a filter")
	}
	return nil
}
