package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// The exit codes are a contract.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // of the command line or of the configuration
)

// app is what a command has of the process. Commands are its methods, one file each.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	env         []string

	configPath string
	// begun says that the command line was understood: what goes wrong from here on is no usage error.
	begun bool
}

// usageError is a command line that is wrong in a way that only the command itself can see.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported ends a command whose failure was already told in its own output.
var errReported = errors.New("reported")

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, a app) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	cmd, err := root.ExecuteContextC(ctx)
	var wrongSetting *config.Error
	var wrongUse usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	a.complain("%v", err)
	switch {
	case errors.As(err, &wrongSetting):
		return exitUsage
	case errors.As(err, &wrongUse), !a.begun:
		a.complain("run '%s --help' for how to use it", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// complain writes one message for people to stderr.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.errOut, "cdc-relay: "+format+"\n", args...)
}

// root is the command line.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cdc-relay",
		Short: "Deliver the rows of a PostgreSQL outbox table to a broker",
		Long: `cdc-relay delivers every committed row of a transactional outbox to a broker: at least once, in order per key, and
within milliseconds.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.`,
		Version: readBuild().Version,
		// Failures are told in one message, without the usage: that hides it.
		SilenceUsage:     true,
		SilenceErrors:    true,
		PersistentPreRun: func(*cobra.Command, []string) { a.begun = true },
	}
	path, _ := a.lookup("CDC_RELAY_CONFIG")
	root.PersistentFlags().StringVarP(&a.configPath, "config", "c", path, "configuration `FILE`, in YAML (environment: CDC_RELAY_CONFIG)")
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.runCommand(), a.demoCommand(), a.initCommand(), a.checkCommand(), a.statusCommand(), a.deadCommand(), a.redriveCommand(), a.purgeCommand(), a.versionCommand())
	return root
}

// group is a command that only has subcommands.
func group(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	names := make([]string, len(subcommands))
	for i, c := range subcommands {
		names[i] = c.Name()
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("say which: %s", strings.Join(names, ", "))
		},
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// lookup is os.LookupEnv on the app's environment.
func (a *app) lookup(name string) (string, bool) {
	for _, kv := range a.env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// config reads the settings. Its error is a *config.Error, which ends the command with exitUsage.
func (a *app) config(options ...config.Option) (*config.Config, error) {
	return config.Load(a.configPath, a.env, options...)
}
