// Command chaos runs the relay among faults and says which of its promises it broke: make chaos.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/machine"
)

type flags struct {
	seed      uint64
	duration  time.Duration
	rate      int
	instances int
	brokers   int
	kinds     string
	race      bool
	mutants   bool
	dir       string
	markdown  string
}

func main() {
	var f flags
	flag.Uint64Var(&f.seed, "seed", 0, "of the schedule; 0: any")
	flag.DurationVar(&f.duration, "for", 30*time.Minute, "how long faults are injected")
	flag.IntVar(&f.rate, "rate", 400, "rows a second")
	flag.IntVar(&f.instances, "instances", 3, "of the relay")
	flag.IntVar(&f.brokers, "brokers", 3, "of Kafka")
	flag.StringVar(&f.kinds, "kinds", "", "of faults, comma separated; empty: all; \"list\" lists them")
	flag.BoolVar(&f.race, "race", false, "build the relay with the race detector")
	flag.BoolVar(&f.mutants, "mutants", true, "show first that a broken relay is caught")
	flag.StringVar(&f.dir, "dir", "", "gets the logs and histories; empty: a temporary one")
	flag.StringVar(&f.markdown, "markdown", "", "file that gets the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = 1
	}
	os.Exit(code) //nolint:gocritic // stop only gives the signals back
}

// run returns 1 when there is a finding.
func run(ctx context.Context, f flags) (code int, err error) {
	if f.kinds == "list" {
		fmt.Println(strings.Join(machine.Kinds(), "\n"))
		return 0, nil
	}
	for f.seed == 0 {
		f.seed = rand.Uint64() % 1_000_000
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "cdc-relay-chaos-"); err != nil {
			return 1, err
		}
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return 1, err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return 1, err
	}
	fmt.Printf("seed %d; logs and histories are in %s\n", f.seed, f.dir)
	o := machine.Options{
		Seed: f.seed, For: f.duration, Rate: f.rate, Instances: f.instances, Pairs: 0.2, Dir: f.dir, Out: os.Stdout,
		Binary: filepath.Join(f.dir, "cdc-relay"), Skewed: filepath.Join(f.dir, "cdc-relay-skewed"),
	}
	if f.kinds != "" {
		o.Kinds = strings.Split(f.kinds, ",")
	}
	if err := machine.Build(ctx, o.Binary, f.race, nil); err != nil {
		return 1, err
	}
	if err := machine.BuildSkewed(ctx, o.Skewed); err != nil {
		return 1, err
	}
	bed, err := machine.StartBed(ctx, f.brokers, os.Stderr)
	if err != nil {
		return 1, err
	}
	defer bed.Close()
	if f.mutants {
		if err := machine.Bite(ctx, bed, f.dir, os.Stdout); err != nil {
			return 1, err
		}
	}
	r, err := machine.Run(ctx, bed, o)
	if err != nil {
		return 1, err
	}
	return tell(r, f)
}

func tell(r *machine.Result, f flags) (code int, err error) {
	fmt.Println()
	r.WriteText(os.Stdout)
	if f.markdown != "" {
		file, err := os.Create(f.markdown)
		if err != nil {
			return 1, err
		}
		r.WriteMarkdown(file)
		if err := file.Close(); err != nil {
			return 1, err
		}
	}
	if len(r.Findings) > 0 {
		fmt.Printf("\nreplay with: make chaos CHAOS_SEED=%d CHAOS_FOR=%v\n", f.seed, f.duration)
		return 1, nil
	}
	return 0, nil
}
