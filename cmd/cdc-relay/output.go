package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// printJSON writes a value for scripts, indented because people read it too.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes rows of cells in columns.
func printTable(w io.Writer, header []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		if len(row) == 0 {
			continue
		}
		cells := make([]string, len(row))
		for i := range row {
			cells[i] = printable(row[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// oneLine makes text fit for a cell, at most width characters long.
func oneLine(text string, width int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}

// isTerminal says whether people see what is written, or type what is read. (/dev/null is a character device as well, and
// no terminal: nobody answers there.)
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// age words a duration for people.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}

// size words a number of bytes for people.
func size(bytes int64) string {
	value, unit := float64(bytes), -1
	for value >= 1024 && unit < 3 {
		value, unit = value/1024, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit])
}

// count words a number of things.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// printable takes out what would move the cursor or break the columns: what stands in a row may come from anybody.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
