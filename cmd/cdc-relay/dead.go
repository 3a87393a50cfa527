package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

func (a *app) deadCommand() *cobra.Command {
	return group("dead", "Look at DEAD rows, retry or discard them",
		a.deadListCommand(), a.deadShowCommand(),
		a.deadActCommand(deadAction{
			use: "retry [ID...]", short: "Make DEAD rows PENDING again, with all attempts before them", past: "retried",
			do: (*lifecycle.Dead).Retry,
		}),
		a.deadActCommand(deadAction{
			use: "discard [ID...]", short: "Delete DEAD rows for good", past: "discarded", final: true,
			do: (*lifecycle.Dead).Discard,
		}))
}

func (a *app) deadListCommand() *cobra.Command {
	var f rowFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List DEAD rows with their errors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.read(nil)
			if err != nil {
				return err
			}
			if filter.Limit < 1 {
				return usagef("--limit must be at least 1")
			}
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error { return a.listDead(cmd.Context(), d, filter, asJSON) })
		},
	}
	f.flags(cmd, "DEAD")
	f.errorFlag(cmd)
	cmd.Flags().IntVar(&f.filter.Limit, "limit", 100, "the most rows to list")
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
	return do(lifecycle.NewDead(o.pool, o.outboxes))
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
		return printJSON(a.out, struct {
			Rows []lifecycle.DeadRow `json:"rows"`
			More bool                `json:"more"`
		}{append([]lifecycle.DeadRow{}, rows...), more})
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "no DEAD rows")
		return nil
	}
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = []string{r.Table, r.ID, r.Topic, keyText(r.Key), fmt.Sprint(r.Attempts), since(r.DeadSince), oneLine(r.LastError, 100)}
	}
	if err := printTable(a.out, []string{"TABLE", "ID", "TOPIC", "KEY", "ATTEMPTS", "DEAD FOR", "LAST ERROR"}, cells); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.out, "there are more: --limit %d is reached\n", limit)
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

// since words how long ago something was.
func since(t *time.Time) string {
	if t == nil {
		return "?"
	}
	return age(max(time.Since(*t), 0))
}

// deadAction is what can be done to DEAD rows.
type deadAction struct {
	use, short, past string
	final            bool // it can't be undone
	do               func(d *lifecycle.Dead, ctx context.Context, f lifecycle.Filter, dryRun bool) (int64, error)
}

func (a *app) deadActCommand(action deadAction) *cobra.Command {
	var f rowFilter
	var dryRun, yes, asJSON bool
	cmd := &cobra.Command{
		Use: action.use, Short: action.short, Args: cobra.ArbitraryArgs,
		Long: action.short + `.

Name the rows by their ids, or choose them by a filter. Only rows that are still DEAD are touched: of two who decide about
the same row, the second finds nothing left to do.`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			filter, err := f.read(ids)
			if err == nil {
				err = f.mustChoose(filter)
			}
			if err != nil {
				return err
			}
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
				if action.final && !dryRun && !yes && isTerminal(a.in) {
					n, err := action.do(d, cmd.Context(), filter, true)
					if err != nil || n == 0 {
						return a.acted(action.past, filter.IDs, n, false, asJSON, err)
					}
					if !a.confirm("discard %s for good?", count(n, "row", "rows")) {
						return fmt.Errorf("nothing was %s", action.past)
					}
				}
				n, err := action.do(d, cmd.Context(), filter, dryRun)
				return a.acted(action.past, filter.IDs, n, dryRun, asJSON, err)
			})
		},
	}
	f.flags(cmd, "DEAD")
	f.errorFlag(cmd)
	f.allFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "count the rows, and change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	if action.final {
		cmd.Flags().BoolVar(&yes, "yes", false, "don't ask on a terminal")
	}
	return cmd
}

// acted tells what an action did.
func (a *app) acted(past string, ids []string, n int64, dryRun, asJSON bool, err error) error {
	switch {
	case err != nil && n > 0 && !dryRun:
		return fmt.Errorf("%w (%s %s before)", err, count(n, "row was", "rows were"), past)
	case err != nil:
		return err
	case asJSON:
		return printJSON(a.out, map[string]any{"rows": n, "dry_run": dryRun})
	case dryRun:
		fmt.Fprintf(a.out, "%s would be %s\n", count(n, "row", "rows"), past)
	case n == 0:
		fmt.Fprintln(a.out, "nothing was left to do: no such row is in that state (any more)")
	case int64(len(ids)) > n:
		fmt.Fprintf(a.out, "%s %d of %d rows; the others are not in that state (any more)\n", past, n, len(ids))
	default:
		fmt.Fprintf(a.out, "%s %s\n", past, count(n, "row", "rows"))
	}
	return nil
}

// confirm asks on the terminal.
func (a *app) confirm(format string, args ...any) bool {
	fmt.Fprintf(a.errOut, format+" [y/N] ", args...)
	answer, _ := bufio.NewReader(a.in).ReadString('\n') // no answer is a no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
