package main

import (
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) redriveCommand() *cobra.Command {
	var f rowFilter
	var order rowOrder
	cmd := &cobra.Command{
		Use: "redrive", Short: "Publish retained PUBLISHED rows again, for consumers that lost their data", Args: cobra.NoArgs,
		Long: `Make PUBLISHED rows PENDING, so that the running relay publishes them again with the same message id: found by its poll, and in the
order of id for each key. Only rows that are still retained (lifecycle.retention) can be redriven. Who did it is written
down: see cdc-relay dead log.`,
	}
	ids := cmd.Flags().StringSlice("id", nil, "the `ID`s of the rows, with commas between")
	f.flags(cmd, "PUBLISHED")
	f.allFlag(cmd)
	order.flags(cmd)
	cmd.Flags().IntVar(&order.order.Rate, "rate", 0, "the most `ROWS` a second, to spare the consumers; 0: as fast as it goes")
	action := rowAction{past: "redriven", do: (*lifecycle.Dead).Redrive}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := f.read(*ids)
		if err == nil {
			err = f.mustChoose(filter)
		}
		if err == nil && order.order.Rate < 0 {
			err = usagef("--rate must not be negative")
		}
		if err != nil {
			return err
		}
		return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
			return a.carryOut(cmd.Context(), d, action, filter, order)
		})
	}
	return cmd
}
