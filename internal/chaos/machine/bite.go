package machine

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

// Bite runs each mutant of the relay for a while, and fails when one is not caught by what it must be caught by.
func Bite(ctx context.Context, bed *Bed, dir string, out io.Writer) error {
	for n, m := range Mutants() {
		if err := m.Bite(ctx, bed, filepath.Join(dir, fmt.Sprintf("mutant%d", n)), out); err != nil {
			return err
		}
	}
	return nil
}

// Bite builds the mutant into path, runs it for a while, and fails when it is not caught by what it must be caught by.
func (m *Mutant) Bite(ctx context.Context, bed *Bed, path string, out io.Writer) error {
	caught, err := m.bite(ctx, bed, path)
	if err != nil {
		return fmt.Errorf("the relay that %s: %w", m.Name, err)
	}
	if len(caught) == 0 {
		return fmt.Errorf("the relay that %s was not caught", m.Name)
	}
	fmt.Fprintf(out, "a relay that %s is caught: %d findings, such as\n  %s\n", m.Name, len(caught), caught[0])
	return nil
}

// bite runs a mutant and returns the findings that are meant for it.
func (m *Mutant) bite(ctx context.Context, bed *Bed, path string) ([]history.Finding, error) {
	if err := Build(ctx, path, false, m); err != nil {
		return nil, err
	}
	r, err := Run(ctx, bed, Options{
		Seed: 1, For: 5 * time.Second, Settle: 10 * time.Second, Instances: 1, Kinds: m.Kinds, Binary: path, Dir: path + ".run",
	})
	if err != nil {
		return nil, err
	}
	var caught []history.Finding
	for _, f := range r.Findings {
		if slices.Contains(m.Finds, f.Kind) {
			caught = append(caught, f)
		}
	}
	return caught, nil
}
