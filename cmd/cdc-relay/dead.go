package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) deadCommand() *cobra.Command {
	return group("dead", "Look at DEAD rows; retry, discard or free them; read who did",
		a.deadListCommand(), a.deadShowCommand(),
		a.deadActCommand(rowAction{
			use: "retry [ID...]", short: "Make DEAD rows PENDING again, with all attempts before them", past: "retried",
			do: (*lifecycle.Dead).Retry,
		}),
		a.deadActCommand(rowAction{
			use: "discard [ID...]", short: "Delete DEAD rows for good", past: "discarded",
			do: (*lifecycle.Dead).Discard,
		}),
		a.deadActCommand(rowAction{
			use: "free [ID...]", short: "Let the keys of DEAD rows go on (ordering.on_dead: block), and keep the rows", past: "freed",
			long: "\n\nA freed row stays DEAD until it is retried or discarded, and blocks nobody; lifecycle.dead_retention spares it.",
			do:   (*lifecycle.Dead).Free,
		}),
		a.deadLogCommand())
}

func (a *app) deadListCommand() *cobra.Command {
	var f rowFilter
	var after string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List DEAD rows with their errors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.read(f.filter.IDs)
			if err != nil {
				return err
			}
			if filter.Limit < 1 {
				return usagef("--limit must be at least 1")
			}
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
				if after != "" {
					if filter.After, err = d.Cursor(after); err != nil {
						return err
					}
				}
				return a.listDead(cmd.Context(), d, filter, asJSON)
			})
		},
	}
	f.flags(cmd, "DEAD")
	f.errorFlags(cmd)
	cmd.Flags().StringSliceVar(&f.filter.IDs, "id", nil, "only the rows with these `ID`s, with commas between")
	cmd.Flags().IntVar(&f.filter.Limit, "limit", 100, "the most rows to list")
	cmd.Flags().StringVar(&after, "after", "", "the next page: behind this `ROW` (schema.table/id), which the page before names")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// withDead opens the tables for a command about DEAD rows.
func (a *app) withDead(ctx context.Context, do func(*lifecycle.Dead) error) error {
	o, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	d := lifecycle.NewDead(o.pool, o.outboxes)
	d.Untraced = func(t lifecycle.Trail) { a.complain("%s; to have an audit trail, run: %s", t.Problem, t.Remedy) }
	return do(d)
}

func (a *app) listDead(ctx context.Context, d *lifecycle.Dead, filter lifecycle.Filter, asJSON bool) error {
	limit := filter.Limit
	filter.Limit++ // one more tells whether there are more
	rows, err := d.List(ctx, filter)
	if err != nil {
		return err
	}
	more := len(rows) > limit
	rows = rows[:min(len(rows), limit)]
	if asJSON {
		next := ""
		if more {
			next = rows[len(rows)-1].Cursor()
		}
		return printJSON(a.out, struct {
			Rows []lifecycle.DeadRow `json:"rows"`
			More bool                `json:"more"`
			Next string              `json:"next,omitempty"` // for --after
		}{append([]lifecycle.DeadRow{}, rows...), more, next})
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "no DEAD rows")
		return nil
	}
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = []string{r.Table, r.ID, r.Topic, keyText(r.Key), fmt.Sprint(r.Attempts), deadFor(r), oneLine(r.LastError, 100)}
	}
	if err := printTable(a.out, []string{"TABLE", "ID", "TOPIC", "KEY", "ATTEMPTS", "DEAD FOR", "LAST ERROR"}, cells); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.out, "there are more: --limit %d is reached; the next page: --after '%s'\n", limit, rows[len(rows)-1].Cursor())
	}
	return nil
}

// keyText shows a key; what isn't there is told from what is empty.
func keyText(key *string) string {
	if key == nil {
		return "(none)"
	}
	if *key == "" || *key != oneLine(*key, 40) {
		return fmt.Sprintf("%.40q", *key)
	}
	return *key
}

// deadFor words how long a row has been DEAD.
func deadFor(r lifecycle.DeadRow) string {
	switch {
	case r.Freed:
		return "freed"
	case r.DeadSince == nil:
		return "?"
	default:
		return age(max(time.Since(*r.DeadSince), 0))
	}
}
