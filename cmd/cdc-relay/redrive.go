package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) redriveCommand() *cobra.Command {
	var f rowFilter
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use: "redrive", Short: "Publish retained PUBLISHED rows again, for consumers that lost their data", Args: cobra.NoArgs,
		Long: `Make PUBLISHED rows PENDING, so that the relay publishes them again with the same message id. Only rows that are still
retained (lifecycle.retention) can be redriven.`,
	}
	ids := cmd.Flags().StringSlice("id", nil, "the `ID`s of the rows, with commas between")
	f.flags(cmd, "PUBLISHED")
	f.allFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "count the rows, and change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := f.read(*ids)
		if err == nil {
			err = f.mustChoose(filter)
		}
		if err != nil {
			return err
		}
		return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
			n, err := d.Redrive(cmd.Context(), filter, dryRun)
			return a.acted("redriven", filter.IDs, n, dryRun, asJSON, err)
		})
	}
	return cmd
}
