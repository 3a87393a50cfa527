package testbed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEventuallyWaitsForEachFormOfCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		testbed.Eventually(t, time.Minute, "true", func() bool { calls++; return calls == 3 })
		testbed.Eventually(t, time.Minute, "nil", func() error {
			if calls++; calls < 6 {
				return errors.New("not yet")
			}
			return nil
		})
		testbed.Eventually(t, time.Minute, "true and nil", func() (bool, error) {
			calls++
			return calls >= 8, map[bool]error{true: errors.New("not yet")}[calls == 8]
		})
		if calls != 9 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestEventuallyFailsWithTheLastErrorWhenTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := run(t, func(f *fake) {
			testbed.Eventually(f, time.Minute, "the row", func() error { return errors.New("no row") })
		})
		if took := time.Since(began); took < time.Minute || took > time.Minute+testbed.Tick {
			t.Errorf("took %v", took)
		}
		if !strings.Contains(f.fatal, "the row") || !strings.Contains(f.fatal, "no row") {
			t.Errorf("failed with %q", f.fatal)
		}
	})
}

func TestAPartIsSkippedOnlyWhenItIsNamed(t *testing.T) {
	t.Setenv(testbed.SkipVariable, "kafka, redis")
	for part, skipped := range map[string]bool{"kafka": true, "redis": true, "postgres": false} {
		f := run(t, func(f *fake) { testbed.Require(f, part) })
		if (f.skip != "") != skipped {
			t.Errorf("%s: skipped with %q", part, f.skip)
		}
	}
	f := run(t, func(f *fake) { testbed.Unavailable(f, "postgres", errors.New("install it")) })
	if f.skip != "" || !strings.Contains(f.fatal, "install it") || !strings.Contains(f.fatal, testbed.SkipVariable+"=postgres") {
		t.Errorf("failed with %q, skipped with %q", f.fatal, f.skip)
	}
}

type tests func() int

func (f tests) Run() int { return f() }

func TestRunClosesInReverseOrderAfterTheTests(t *testing.T) {
	var order []string
	closer := func(name string, err error) {
		testbed.OnExit(func() error { order = append(order, name); return err })
	}
	code := testbed.Run(tests(func() int {
		closer("a", nil)
		closer("b", nil)
		order = append(order, "tests")
		return 3
	}))
	if code != 3 || !slices.Equal(order, []string{"tests", "b", "a"}) {
		t.Errorf("code %d, order %v", code, order)
	}
	order = nil
	code = testbed.Closing(tests(func() int {
		closer("c", errors.New("it hangs"))
		return 0
	})).Run()
	if code != 1 || !slices.Equal(order, []string{"c"}) { // a and b were closed already
		t.Errorf("code %d, order %v", code, order)
	}
}

func TestAPlaceBelongsToOne(t *testing.T) {
	a, b := reserve(t), reserve(t)
	if a.Port == b.Port || a.Dir == b.Dir {
		t.Errorf("%v and %v", a, b)
	}
	port := a.Port
	for range 2 { // the second finds nothing to do
		if err := a.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(a.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
	// Somebody else's server on the port: the place isn't free though nobody holds it.
	l, err := net.Listen("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c := reserve(t); c.Port == port {
		t.Error("got a port that somebody listens on")
	}
}

func reserve(t *testing.T) *testbed.Place {
	t.Helper()
	p, err := testbed.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	})
	return p
}

const ownerVariable = "TESTBED_OWNER"

// TestOwner isn't a test but the process that the next test kills.
func TestOwner(t *testing.T) {
	if os.Getenv(ownerVariable) == "" {
		return
	}
	p, err := testbed.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("sleep", "1000")
	sleep.ExtraFiles = []*os.File{os.NewFile(3, "the test's pipe")}
	child, err := testbed.StartProcess(sleep, nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(p.Dir + "\n")
	child.Exited(time.Hour)
}

func TestAKilledOwnerLeavesNeitherProcessNorFiles(t *testing.T) {
	// A root of its own, so that the next place is the killed owner's.
	t.Setenv("TMPDIR", t.TempDir())
	owner := exec.Command(os.Args[0], "-test.run=^TestOwner$")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	alive, theirs, err := os.Pipe() // ends when the owner and its child are gone
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	owner.ExtraFiles = []*os.File{theirs}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	buf := make([]byte, 1024)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(buf[:n]))
	if p := reserve(t); p.Dir == dir {
		t.Fatal("got the place of an owner that lives")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	_ = alive.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := alive.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("the child lives on (%v)", err)
	}
	var mine []*testbed.Place
	testbed.Eventually(t, 10*time.Second, "the place", func() bool {
		mine = append(mine, reserve(t))
		return mine[len(mine)-1].Dir == dir
	})
	if _, err := os.Stat(filepath.Join(dir, "left")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the owner left: %v", err)
	}
}

func TestLockWaitsForItsOwnerOrTheEndOfPatience(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := testbed.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*testbed.Tick)
	defer cancel()
	if _, err := testbed.Lock(short, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error = %v", err)
	}
	unlock()
	again, err := testbed.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestAProcessIsSeenToEnd(t *testing.T) {
	p, err := testbed.StartProcess(exec.Command("sh", "-c", "read line; exit 3"), nil, syscall.SIGKILL)
	if err != nil { // its standard input is empty
		t.Fatal(err)
	}
	if !p.Exited(10 * time.Second) {
		t.Fatal("still there")
	}
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() != 3 {
		t.Errorf("Err() = %v", p.Err())
	}
	if err := p.Stop(syscall.SIGTERM, 0); err != nil {
		t.Errorf("stop a process that has ended: %v", err)
	}
}

func TestWhetherAProcessHasEndedIsKnownWithoutWaiting(t *testing.T) {
	p, err := testbed.StartProcess(exec.Command("true"), nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 10*time.Second, "the process to be seen to end", func() bool { return p.Exited(0) })
}

func TestAProcessIsStoppedEvenWhenItIsHalted(t *testing.T) {
	// It has a handler: without one the kernel ends even a halted process.
	p := shell(t, "trap 'kill $!; exit 0' TERM; sleep 1000 & touch $0; wait")
	if p.Exited(0) {
		t.Fatal("it has ended")
	}
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(syscall.SIGTERM, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script, which must make the file $0 when it is ready; it is killed at the test's end.
func shell(t *testing.T, script string) *testbed.Process {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	p, err := testbed.StartProcess(exec.Command("sh", "-c", script, ready), nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Exited(0) {
			return
		}
		// The shell's process group: its child too.
		if err := syscall.Kill(-p.Pid(), syscall.SIGKILL); err != nil || !p.Exited(10*time.Second) {
			t.Errorf("not killed (%v)", err)
		}
	})
	testbed.Eventually(t, 10*time.Second, "the script", func() error {
		_, err := os.Stat(ready)
		return err
	})
	return p
}

func TestStopSaysWhenAProcessDoesntListen(t *testing.T) {
	p := shell(t, "trap '' TERM; touch $0; sleep 1000")
	if err := p.Stop(syscall.SIGTERM, 5*testbed.Tick); err == nil {
		t.Error("no error")
	}
}

func TestOutputHasWhatAFailedCommandSaid(t *testing.T) {
	_, err := testbed.Output(t.Context(), nil, []string{"WORD=hello"}, "sh", "-c", "echo $WORD; exit 1")
	if err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("error = %v", err)
	}
}
