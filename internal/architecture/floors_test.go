package architecture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cdc-relay/cdc-relay/"

// floors are the packages by floor, from below; what is under a package is on its floor, unless it is named itself.
var floors = map[string]int{
	"internal/event": 0, "internal/preflight": 0,
	"internal/sink": 1, "internal/sink/sinktest": 1, "internal/table": 1,
	"internal/replication": 2, "internal/fallbackpoll": 2, "internal/dispatch": 2, "internal/lifecycle": 2,
	"internal/sink/*": 2,
	"internal/relay":  3, "internal/admin": 3,
	"cmd": 4, "bench": 4,
}

// helpers serve tests, and the commands that start a throwaway server.
var helpers = []string{"internal/pgtest", "internal/kafkatest", "internal/redistest", "internal/testbed", "internal/chaos", "internal/e2e", "internal/architecture"}

// public packages are imported by applications, so they bring nothing of the relay along.
var public = []string{"outbox", "inbox"}

// pkg is what go list says of a package. Imports are without those of its tests.
type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportsGoDownOnly(t *testing.T) {
	t.Parallel()
	for _, v := range violations(list(t)) {
		t.Error(v)
	}
}

// list asks go list, which sees what the compiler sees.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// violations are the imports within the module that the design doesn't have.
func violations(pkgs []pkg) []string {
	var all []string
	for _, p := range pkgs {
		from, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue
		}
		if why := placeless(from); why != "" {
			all = append(all, why)
			continue
		}
		for _, i := range p.Imports {
			if to, ok := strings.CutPrefix(i, module); ok {
				if why := forbidden(from, to); why != "" {
					all = append(all, fmt.Sprintf("%s imports %s: %s", from, to, why))
				}
			}
		}
	}
	return all
}

// placeless names a package that has no place yet.
func placeless(path string) string {
	if _, _, ok := floorOf(path); ok || isHelper(path) || isConfig(path) || isPublic(path) {
		return ""
	}
	return path + " has no floor: give it one here and in ARCHITECTURE.md"
}

// forbidden says why an import isn't allowed, or "".
func forbidden(from, to string) string {
	fromFloor, fromUnit, _ := floorOf(from)
	toFloor, toUnit, toHasFloor := floorOf(to)
	command := fromFloor == 4
	switch {
	case isHelper(to):
		if isHelper(from) || command || from == "internal/sink/sinktest" {
			return ""
		}
		return "it serves tests and commands only"
	case isHelper(from):
		return "" // helpers may use whatever they help with
	case isConfig(to):
		if command || isConfig(from) {
			return ""
		}
		return "only commands know the configuration"
	case isConfig(from):
		return "the configuration knows no component"
	case isPublic(from):
		if isPublic(to) {
			return ""
		}
		return "applications import this package: it brings nothing of the relay along"
	case isPublic(to):
		if command {
			return ""
		}
		return "it is for applications"
	case !toHasFloor, fromUnit == toUnit:
		return ""
	case toFloor > fromFloor:
		return fmt.Sprintf("that is up, from floor %d to %d", fromFloor, toFloor)
	case toFloor == fromFloor:
		return fmt.Sprintf("both are on floor %d", toFloor)
	}
	return ""
}

// floorOf finds the nearest package above that has a floor. Packages below one unit may import each other.
func floorOf(path string) (floor int, unit string, ok bool) {
	for unit = path; unit != ""; {
		if floor, ok := floors[unit]; ok {
			if unit == "internal/sink/sinktest" {
				unit = "internal/sink"
			}
			return floor, unit, true
		}
		parent := unit[:max(0, strings.LastIndexByte(unit, '/'))]
		if floor, ok := floors[parent+"/*"]; ok {
			return floor, unit, true
		}
		unit = parent
	}
	return 0, "", false
}

func under(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

func isHelper(path string) bool { return under(path, helpers...) }
func isPublic(path string) bool { return under(path, public...) }
func isConfig(path string) bool { return under(path, "internal/config") }

func TestAForbiddenImportIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"internal/event", "internal/table", "that is up, from floor 0 to 1"},
		{"internal/dispatch", "internal/relay", "that is up, from floor 2 to 3"},
		{"internal/dispatch", "internal/lifecycle", "both are on floor 2"},
		{"internal/sink", "internal/table", "both are on floor 1"},
		{"internal/sink/kafka", "internal/sink/redisstream", "both are on floor 2"},
		{"internal/sink", "internal/sink/kafka", "that is up, from floor 1 to 2"},
		{"internal/relay", "internal/config", "only commands know the configuration"},
		{"internal/config", "internal/event", "the configuration knows no component"},
		{"internal/relay", "internal/pgtest", "it serves tests and commands only"},
		{"outbox", "internal/event", "applications import this package: it brings nothing of the relay along"},
		{"internal/relay", "outbox", "it is for applications"},

		{"cmd/cdc-relay", "internal/event", ""},
		{"cmd/cdc-relay", "internal/config", ""},
		{"cmd/cdc-relay", "internal/pgtest", ""},
		{"internal/relay", "internal/sink/kafka", ""},
		{"internal/sink/kafka", "internal/sink", ""},
		{"internal/sink/kafka/scram", "internal/sink/kafka", ""},
		{"internal/sink/sinktest", "internal/sink", ""},
		{"internal/sink/sinktest", "internal/testbed", ""},
		{"internal/pgtest", "internal/testbed", ""},
	} {
		if got := forbidden(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
	if got := violations([]pkg{{ImportPath: module + "internal/newcomer"}}); len(got) != 1 {
		t.Errorf("a package without a floor gives %q", got)
	}
}
