package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

// rowAction is what a command does to the rows that a person chooses.
type rowAction struct {
	use, short, long, past string
	do                     func(d *lifecycle.Dead, ctx context.Context, f lifecycle.Filter, by lifecycle.Order) (int64, error)
}

// rowOrder is the flags that say how an action is carried out.
type rowOrder struct {
	order       lifecycle.Order
	yes, asJSON bool
}

func (o *rowOrder) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&o.order.DryRun, "dry-run", false, "count the rows, and change nothing")
	fl.StringVar(&o.order.Reason, "reason", "", "why, in your own words: `TEXT` for the audit trail")
	fl.BoolVar(&o.yes, "yes", false, "don't count and ask first; where nobody can be asked, nobody is")
	fl.BoolVar(&o.asJSON, "json", false, "print JSON")
}

func (a *app) deadActCommand(action rowAction) *cobra.Command {
	var f rowFilter
	var order rowOrder
	cmd := &cobra.Command{
		Use: action.use, Short: action.short, Args: cobra.ArbitraryArgs,
		Long: action.short + `.

Name the rows by their ids, or choose them by a filter. Only rows that are still DEAD are touched: of two who decide about
the same row, the second finds nothing left to do. On a terminal the rows are counted, and you are asked, before anything
is changed. Who did it is written down: see cdc-relay dead log.` + action.long,
		RunE: func(cmd *cobra.Command, ids []string) error {
			filter, err := f.read(ids)
			if err == nil {
				err = f.mustChoose(filter)
			}
			if err != nil {
				return err
			}
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
				return a.carryOut(cmd.Context(), d, action, filter, order)
			})
		},
	}
	f.flags(cmd, "DEAD")
	f.errorFlags(cmd)
	f.allFlag(cmd)
	order.flags(cmd)
	return cmd
}

// carryOut counts and asks first, where somebody can be asked.
func (a *app) carryOut(ctx context.Context, d *lifecycle.Dead, action rowAction, filter lifecycle.Filter, o rowOrder) error {
	by := o.order
	by.Actor = actor()
	if !by.DryRun && !o.yes && isTerminal(a.in) {
		dry := by
		dry.DryRun = true
		n, err := action.do(d, ctx, filter, dry)
		if err != nil || n == 0 {
			return a.acted(action.past, filter.IDs, n, false, o.asJSON, err)
		}
		if !a.confirm("%s will be %s. Go on?", count(n, "row", "rows"), action.past) {
			return errors.New("nothing was " + action.past)
		}
	}
	progress := a.progress()
	by.Progress = func(n int64) { progress("%s %s", action.past, count(n, "row", "rows")) }
	n, err := action.do(d, ctx, filter, by)
	progress("")
	return a.acted(action.past, filter.IDs, n, by.DryRun, o.asJSON, err)
}

// actor is who runs the command, as far as the operating system says.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
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
