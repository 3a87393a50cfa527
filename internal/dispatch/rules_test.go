package dispatch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each rule of the hand-over is there because its absence loses, repeats or reorders something. This test takes each
// rule out of the source, in a copy that only the compiler sees, and expects the property test to find what breaks.
func TestHandOverEachRuleIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package once a rule: not in -short")
	}
	mutants := []struct{ rule, file, from, to string }{
		{"1: what is buffered is fed behind the pass", "pass.go", "\t\tm.flush(done)\n", "\t\t_ = done\n\t\tm.buffer.reset()\n"},
		{"2: settle delay before LIVE", "pass.go", "settle := m.limits.settle\n", "settle := -time.Hour\n"},
		{"2: settle delay before a key is stream-fed again", "park.go", "p.began.After(pk.since.Add(m.limits.settle))", "true"},
		{"3: a pass that was cut hands nothing over", "pass.go", "cut := p.page.Cut ||", "cut :="},
		{"4: a failure parks its key", "lane.go", "\t\t\tm.park(it.key)\n", ""},
		{"4: a pass under way must not feed a parked key", "park.go", "\t\tm.pass.blocked[k] = true\n\t}\n\tm.throwOut(k)", "\t}\n\tm.throwOut(k)"},
		{"4: what waits behind a failure is thrown out", "park.go", "\tm.throwOut(k)\n", ""},
		{"5: a failure not yet written down blocks its key", "pass.go", "if known.phase == failing || known.phase == waiting {", "if known.phase == waiting {"},
		{"5: a page from before the failure does not show the row as due", "pass.go", "known.phase == failing || known.phase == waiting", "known.phase == failing"},
		{"5: a row that isn't due blocks its key", "pass.go", "\tcase e.DueIn > 0 && e.ReceivedAt.Add(e.DueIn).After(m.now):\n", "\tcase e.DueIn > 0 && e.ReceivedAt.Add(e.DueIn).After(m.now):\n\t\treturn true\n\tcase false:\n"},
		{"6: a refusal returns to CATCHUP", "machine.go", "\tm.catchUp(\"dispatch is full\")\n", ""},
		{"7: CATCHUP aborts a pass begun in LIVE", "machine.go", "if m.pass != nil && m.pass.live {", "if false {"},
		{"8: a pass in LIVE does not feed what the stream may bring", "pass.go", "case m.mode == Live && m.parked[k] == nil:", "case false:"},
		{"9: a settled row stays known", "known.go", "if m.inUse(r.read) || m.stream.phase != streamDown && m.stream.pos < r.wal {", "if false {"},
		{"9: until no page can bring it", "known.go", "m.inUse(r.read) || ", ""},
		{"9: until the stream has passed it", "known.go", " || m.stream.phase != streamDown && m.stream.pos < r.wal", ""},
		{"9: a stream about to start counts", "machine.go", "\tm.stream.phase, m.stream.pos = streamConnecting, 0\n", ""},
		{"9: what a pass feeds leaves the buffer", "lane.go", "\tm.buffer.remove(it.ID)\n", ""},
		{"11: a lane holds its batch while the sink is away", "lane.go", "\t\t\tback = append(back, it)\n", "\t\t\tm.drop([]item{it})\n\t\t\tm.sinkLost()\n"},
		{"12: what follows a failed event of its key is not attempted", "lane.go", "\t\tcase failed[it.key]:\n\t\t\tm.drop([]item{it})", "\t\tcase false:\n\t\t\tm.drop([]item{it})"},
	}
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			out, err := runMutant(t, m.file, m.from, m.to)
			if err == nil {
				t.Errorf("without this rule the property test finds nothing")
			} else if !strings.Contains(out, "--- FAIL: TestHandOver") {
				t.Errorf("the test did not run:\n%s", out)
			}
		})
	}
}

// runMutant runs the property test over a copy of the package in which one piece of source is replaced.
func runMutant(t *testing.T, file, from, to string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), from) != 1 {
		t.Fatalf("%q must stand in %s exactly once: the code has changed, change the mutant with it", from, file)
	}
	dir := t.TempDir()
	mutant := filepath.Join(dir, file)
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(source), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{here: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay="+list, "-run=^TestHandOverG", "-timeout=5m", ".", "-seeds=600", "-steps=5000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
