package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

// Build builds the relay into path. A mutant changes a source file in a copy that only the compiler sees; nil: none.
func Build(ctx context.Context, path string, race bool, m *Mutant) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	}
	if m != nil {
		list, err := m.overlay(root, path+".overlay")
		if err != nil {
			return err
		}
		args = append(args, "-overlay="+list)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/cdc-relay")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Mutant is the relay with one of its rules broken, and what must be found when it runs.
type Mutant struct {
	Name  string
	Finds []string // any of these kinds
	// Kinds are the faults that bring it to light.
	Kinds []string
	File  string // from the root of the module, or absolute
	Edits []Edit
}

// Edit replaces a piece of source that stands in its file once.
type Edit struct{ From, To string }

// Mutants are the relay broken on purpose.
func Mutants() []*Mutant {
	return []*Mutant{
		{
			Name: "takes a row for acknowledged before the broker has it", Finds: []string{history.MarkedEarly, history.Lost},
			Kinds: []string{"connections to Kafka stalled", "kill -9 of all relays"},
			File:  "internal/sink/kafka/producer.go",
			Edits: []Edit{{
				From: "func (p *producer) wait(ctx context.Context, r *round) []error {\n",
				To:   "func (p *producer) wait(ctx context.Context, r *round) []error {\n\tif true {\n\t\treturn make([]error, len(r.out))\n\t}\n",
			}},
		},
		{
			Name: "drops what a full lane does not take", Finds: []string{history.OutOfOrder, history.Unsettled},
			Kinds: []string{"transaction larger than dispatch", "connections to Kafka stalled"},
			File:  "internal/dispatch/machine.go",
			Edits: []Edit{{
				From: "\tif !m.feed(item{e, k}) {\n\t\tm.refused()\n\t\tm.keep(e)\n\t}\n",
				To:   "\tm.feed(item{e, k})\n",
			}},
		},
		{
			Name: "doesn't remember what it has in hand", Finds: []string{history.Duplicates},
			Kinds: []string{"walsender terminated", "long-running reader"},
			File:  "internal/dispatch/pass.go",
			Edits: []Edit{{
				From: "\tknown, isKnown := m.known[e.ID]\n\tswitch {\n",
				To:   "\tknown, isKnown := m.known[e.ID]\n\tisKnown = false\n\tswitch {\n",
			}},
		},
		{
			Name: "marks a row before it is sent", Finds: []string{history.MarkedEarly, history.Lost},
			Kinds: []string{"connections to Kafka stalled", "kill -9 of all relays"},
			File:  "internal/dispatch/sender.go",
			Edits: []Edit{{
				From: "\t\tr := laneResult{lane: n, errs: s.publish(ctx, batch)}\n",
				To:   "\t\tfor _, it := range batch {\n\t\t\td.settler.Mark([]*event.Event{it.Event})\n\t\t}\n\t\tr := laneResult{lane: n, errs: s.publish(ctx, batch)}\n",
			}},
		},
	}
}

// skewedClock is the standard library with a clock that CHAOS_CLOCK_SKEW moves, in hours and minutes as in +00:10 or
// -07:00. The monotonic clock is left alone, as in reality.
func skewedClock() *Mutant {
	return &Mutant{
		//nolint:staticcheck // the overlay is for a build on this machine, by the Go that built this program
		File: filepath.Join(runtime.GOROOT(), "src", "time", "time.go"),
		Edits: []Edit{
			{From: "\t\"math/bits\"\n", To: "\t\"math/bits\"\n\t\"syscall\"\n"},
			{From: "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", To: `var clockSkew = func() int64 {
	s, _ := syscall.Getenv("CHAOS_CLOCK_SKEW")
	if len(s) != 6 {
		return 0
	}
	digit := func(i int) int64 { return int64(s[i] - '0') }
	minutes := (digit(1)*10+digit(2))*60 + digit(4)*10 + digit(5)
	if s[0] == '-' {
		minutes = -minutes
	}
	return minutes * 60
}()

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += clockSkew
`},
		},
	}
}

// BuildSkewed builds the relay with a clock that an environment variable moves.
func BuildSkewed(ctx context.Context, path string) error {
	return Build(ctx, path, false, skewedClock())
}

// overlay writes the changed file and the list that go build takes.
func (m *Mutant) overlay(root, dir string) (string, error) {
	file := m.File
	if !filepath.IsAbs(file) {
		file = filepath.Join(root, file)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, e := range m.Edits {
		if n := strings.Count(text, e.From); n != 1 {
			return "", fmt.Errorf("%q must stand in %s exactly once and stands there %d times: the code has changed, change the mutant with it", e.From, file, n)
		}
		text = strings.Replace(text, e.From, e.To, 1)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, replace, 0o600)
}
