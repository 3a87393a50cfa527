package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker (see the Makefile); empty in a build without it.
var version, commit string

// build is what this binary is made of.
type build struct {
	Version   string            `json:"version"`
	Commit    string            `json:"commit"`
	Go        string            `json:"go"`
	Platform  string            `json:"platform"`
	Libraries map[string]string `json:"libraries"`
}

// readBuild asks the linker's variables first, and then what Go itself writes into a binary.
func readBuild() build {
	b := build{
		Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Libraries: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = cmp.Or(b.Commit, s.Value)
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Libraries[m.Path] = m.Version
	}
	b.Version = cmp.Or(b.Version, info.Main.Version, "(devel)")
	b.Commit = cmp.Or(b.Commit, "unknown")
	return b
}

// named are the libraries that talk to servers: those that matter in a bug report.
var named = []string{"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl", "github.com/IBM/sarama", "github.com/redis/go-redis/v9"}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, the commit, Go and the libraries", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if asJSON {
				return printJSON(a.out, b)
			}
			rows := [][]string{{"version", b.Version}, {"commit", b.Commit}, {"go", fmt.Sprintf("%s %s", b.Go, b.Platform)}}
			for _, name := range named {
				if v, ok := b.Libraries[name]; ok {
					rows = append(rows, []string{name, v})
				}
			}
			return printTable(a.out, nil, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all libraries")
	return cmd
}
