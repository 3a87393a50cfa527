package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) deadLogCommand() *cobra.Command {
	var before int64
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "log", Short: "List who retried, discarded, freed or redrove rows, the newest first", Args: cobra.NoArgs,
		Long: `List the audit trail: the table cdc_relay_audit, which init makes beside the first outbox table. Each entry is one
transaction, and was written within it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || before < 0 {
				return usagef("--limit must be at least 1, and --before not negative")
			}
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
				deeds, err := d.Log(cmd.Context(), before, limit+1) // one more tells whether there are more
				if err != nil {
					return err
				}
				return a.listDeeds(deeds[:min(len(deeds), limit)], len(deeds) > limit, asJSON)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "the most entries to list")
	cmd.Flags().Int64Var(&before, "before", 0, "the next page: entries older than the one with this `NUMBER`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all ids")
	return cmd
}

func (a *app) listDeeds(deeds []lifecycle.Deed, more, asJSON bool) error {
	if asJSON {
		return printJSON(a.out, struct {
			Entries []lifecycle.Deed `json:"entries"`
			More    bool             `json:"more"`
		}{append([]lifecycle.Deed{}, deeds...), more})
	}
	if len(deeds) == 0 {
		fmt.Fprintln(a.out, "no entries")
		return nil
	}
	cells := make([][]string, len(deeds))
	for i, e := range deeds {
		reason := ""
		if e.Reason != nil {
			reason = oneLine(*e.Reason, 60)
		}
		cells[i] = []string{
			fmt.Sprint(e.ID), e.At.UTC().Format(time.RFC3339), e.Actor + " as " + e.DBUser, e.Command, e.Table, fmt.Sprint(e.Rows),
			oneLine(strings.Join(e.IDs[:min(len(e.IDs), 10)], " "), 40), oneLine(string(e.Filter), 60), reason,
		}
	}
	if err := printTable(a.out, []string{"NUMBER", "AT", "WHO", "COMMAND", "TABLE", "ROWS", "IDS", "FILTER", "REASON"}, cells); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.out, "there are more: --before %d\n", deeds[len(deeds)-1].ID)
	}
	return nil
}
