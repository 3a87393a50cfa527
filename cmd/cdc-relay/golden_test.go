package main

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s changed (run with -update when that is wanted; -want +got):\n%s", path, diff)
	}
}

// helpPaths are the commands below one, itself first.
func helpPaths(cmd *cobra.Command, path []string) [][]string {
	all := [][]string{path}
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			all = append(all, helpPaths(c, append(append([]string(nil), path...), c.Name()))...)
		}
	}
	return all
}
