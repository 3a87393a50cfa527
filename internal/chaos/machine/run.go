package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

// Result is what a run has found.
type Result struct {
	Options Options
	Bed     string // what the servers were
	Windows []history.Window
	*history.Verdict
}

// Run is one run on a bed. Its error is the harness's; what it finds is in the result.
func Run(ctx context.Context, bed *Bed, o Options) (*Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, bed, o)
	if err != nil {
		return nil, fmt.Errorf("prepare the run: %w", err)
	}
	h, err := w.play(ctx)
	err = errors.Join(err, w.close())
	if err != nil {
		return nil, fmt.Errorf("run with seed %d: %w", o.Seed, err)
	}
	v := history.Check(h)
	v.Findings = append(w.findings, v.Findings...)
	r := &Result{Options: o, Bed: bed.describe(), Windows: h.Windows, Verdict: v}
	if len(v.Findings) > 0 {
		err = w.save(h, v)
	}
	return r, err
}

// play starts everybody, lets the schedule run, brings everything to its end, and gathers what the witnesses say.
func (w *world) play(ctx context.Context) (*history.History, error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	hard, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, i := range w.instances {
		if err := i.start(0); err != nil {
			return nil, err
		}
	}
	wg.Go(func() { w.monitor(hard) })
	work, stop := context.WithCancel(hard)
	defer stop()
	errs := make(chan error, len(w.writers))
	var writers sync.WaitGroup
	for _, wr := range w.writers {
		writers.Go(func() { errs <- wr.run(work, hard) })
	}
	wg.Go(func() { w.operate(work) })

	err := w.schedule(hard)
	err = errors.Join(err, w.mend(context.WithoutCancel(ctx)))
	stop()
	writers.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	w.settle(ctx)
	cancel()
	wg.Wait()
	for _, i := range w.instances {
		if err := i.end(syscall.SIGTERM); err != nil {
			w.report(history.Process, "instance %d stopped in the end with: %v", i.n, err)
		}
	}
	return w.gather(ctx)
}

// settle waits until no row is PENDING, or too long: then the judge will tell which.
func (w *world) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.options.Settle)
	defer cancel()
	for quiet := 0; quiet < 3; quiet++ {
		var pending bool
		if err := w.pool.QueryRow(ctx, anyPending()).Scan(&pending); err != nil || pending {
			quiet = -1
		}
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
}
