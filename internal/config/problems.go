package config

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with the settings.
type Problem struct {
	// Key is the path of the setting, such as dispatch.lanes or outboxes[0].table. Empty: the file as a whole.
	Key string
	// Where it was set: file:line or the name of an environment variable. Empty: nowhere, it is the default or missing.
	Where string
	// Message continues the key to a sentence. It never holds the value of a secret.
	Message string
}

// String is the problem as one line.
func (p Problem) String() string {
	s := strings.TrimSpace(p.Key + " " + p.Message)
	if p.Where != "" {
		s = p.Where + ": " + s
	}
	return s
}

// Error is everything that is wrong with the settings.
type Error struct{ Problems []Problem }

// Error implements error: one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return "configuration: " + strconv.Itoa(len(lines)) + " problems\n  " + strings.Join(lines, "\n  ")
}

// fail notes a problem of a key that was set at the given place.
func (l *loader) fail(key string, at origin, format string, args ...any) {
	l.problems = append(l.problems, problem{
		Problem: Problem{Key: key, Where: at.String(), Message: fmt.Sprintf(format, args...)}, line: at.line,
	})
}

// problem remembers the line, so that problems come in the order of the file.
type problem struct {
	Problem
	line int
}

// err is what Load returns: first the file from top to bottom, then what stands in no line.
func (l *loader) err() error {
	if len(l.problems) == 0 {
		return nil
	}
	sort.SliceStable(l.problems, func(i, j int) bool {
		a, b := l.problems[i].line, l.problems[j].line
		return a != 0 && (b == 0 || a < b)
	})
	e := &Error{}
	for _, p := range l.problems {
		e.Problems = append(e.Problems, p.Problem)
	}
	return e
}

// origin is the place where a setting was set.
type origin struct {
	file string
	line int
	env  string
}

// String is file:line, or the environment variable.
func (o origin) String() string {
	switch {
	case o.env != "":
		return o.env
	case o.line > 0:
		return o.file + ":" + strconv.Itoa(o.line)
	default:
		return o.file
	}
}

// nearest is the candidate that was probably meant, or "".
func nearest(name string, candidates []string) string {
	best, least := "", 1+len(name)/3
	for _, c := range candidates {
		if d := distance(plain(name), plain(c)); d <= least && (best == "" || d < least) {
			best, least = c, d
		}
	}
	return best
}

// plain drops what differs between spellings of one name: maxInFlight, max-in-flight, MAX_IN_FLIGHT.
func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance is the edit distance of Levenshtein, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
