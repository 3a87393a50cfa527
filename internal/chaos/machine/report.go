package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

// Line is what the table says of one kind of fault.
type Line struct {
	Kind       string
	Times      int
	Written    int
	Lost       int
	OutOfOrder int
	DupMax     int
	DupMean    float64
	BackMedian time.Duration // negative: never measured
	BackMax    time.Duration
}

// Lines are the results by kind of fault, of several runs together.
func Lines(results ...*Result) []Line {
	type sum struct {
		Line
		duplicates int
		back       []time.Duration
	}
	var order []string
	sums := map[string]*sum{}
	for _, r := range results {
		for n, win := range r.Windows {
			s := sums[win.Kind]
			if s == nil {
				s = &sum{Line: Line{Kind: win.Kind}}
				sums[win.Kind], order = s, append(order, win.Kind)
			}
			t := r.Tallies[n]
			s.Times++
			s.Written, s.Lost, s.OutOfOrder = s.Written+t.Written, s.Lost+t.Lost, s.OutOfOrder+t.OutOfOrder
			s.duplicates += t.Duplicates
			s.DupMax = max(s.DupMax, t.Duplicates)
			if !win.Back.IsZero() && win.Kind != noFault {
				s.back = append(s.back, win.Back.Sub(win.Healed))
			}
		}
	}
	slices.SortFunc(order, func(a, b string) int { return rank(a) - rank(b) })
	var lines []Line
	for _, kind := range order {
		s := sums[kind]
		s.DupMean = float64(s.duplicates) / float64(s.Times)
		s.BackMedian = -1
		if n := len(s.back); n > 0 {
			slices.Sort(s.back)
			s.BackMedian, s.BackMax = s.back[n/2], s.back[n-1]
		}
		lines = append(lines, s.Line)
	}
	return lines
}

// rank is the order of the catalogue.
func rank(kind string) int {
	if kind == noFault {
		return -1
	}
	for n, f := range catalogue() {
		if f.kind == kind {
			return n
		}
	}
	return 1000
}

var columns = []string{"fault", "times", "events written", "lost", "out of order", "duplicates max", "mean", "back to LIVE median", "max"}

func (l Line) cells() []string {
	median, most := "–", "–"
	if l.BackMedian >= 0 {
		median, most = seconds(l.BackMedian), seconds(l.BackMax)
	}
	return []string{
		l.Kind, fmt.Sprint(l.Times), fmt.Sprint(l.Written), fmt.Sprint(l.Lost), fmt.Sprint(l.OutOfOrder), fmt.Sprint(l.DupMax),
		fmt.Sprintf("%.1f", l.DupMean), median, most,
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// WriteText prints the result for people at a terminal.
func (r *Result) WriteText(out io.Writer) {
	rows := [][]string{columns}
	for _, l := range Lines(r) {
		rows = append(rows, l.cells())
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for n, cell := range row {
			widths[n] = max(widths[n], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		for n, cell := range row {
			if n == 0 {
				fmt.Fprintf(out, "%-*s", widths[n], cell)
			} else {
				fmt.Fprintf(out, "  %*s", widths[n], cell)
			}
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\nseed %d, %s, %d instances: %d faults. %s\n", r.Options.Seed, r.Bed, r.Options.Instances, len(r.Windows)-1, r.Summary())
	for n, f := range r.Findings {
		if n == 30 {
			fmt.Fprintf(out, "… and %d more\n", len(r.Findings)-n)
			break
		}
		fmt.Fprintf(out, "FINDING (%s) %s\n", r.during(f), f)
	}
}

// during is the fault that a finding is charged to.
func (r *Result) during(f history.Finding) string {
	if f.Window < 0 {
		return "at no time"
	}
	win := r.Windows[f.Window]
	return win.Kind + " at " + win.Began.Format("15:04:05")
}

// WriteMarkdown prints the table for a page.
func (r *Result) WriteMarkdown(out io.Writer) {
	fmt.Fprintf(out, "| %s |\n| --- |%s\n", strings.Join(columns, " | "), strings.Repeat(" ---: |", len(columns)-1))
	for _, l := range Lines(r) {
		fmt.Fprintf(out, "| %s |\n", strings.Join(l.cells(), " | "))
	}
	fmt.Fprintf(out, "\n%s; %d instances of the relay; %d faults. %s.\n", r.Bed, r.Options.Instances, len(r.Windows)-1, r.Summary())
}

// describe is what the servers are.
func (b *Bed) describe() string {
	return fmt.Sprintf("Postgres %s and %d Kafka broker(s)", b.postgres.ServerVersion(), b.kafka.Nodes())
}

// save keeps the history of a run that found something.
func (w *world) save(h *history.History, v *history.Verdict) error {
	for name, what := range map[string]any{"history": h, "findings": v.Findings} {
		f, err := os.Create(filepath.Join(w.options.Dir, w.database+"-"+name+".json"))
		if err != nil {
			return err
		}
		if err := json.NewEncoder(f).Encode(what); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
