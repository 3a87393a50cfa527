package testbed

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// TB is the part of testing.TB that the helpers use. *testing.T, *testing.B and *rapid.T have it.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// SkipVariable names the environment variable with the comma separated parts whose absence skips tests.
const SkipVariable = "CDC_RELAY_TEST_SKIP"

// Require returns when the part may be used, and skips the test when SkipVariable names it.
func Require(t TB, part string) {
	t.Helper()
	names := strings.Split(os.Getenv(SkipVariable), ",")
	if slices.ContainsFunc(names, func(s string) bool { return strings.TrimSpace(s) == part }) {
		t.Skipf("%s is named by %s", part, SkipVariable)
	}
}

// Unavailable fails the test because the part couldn't be started. A missing part is never a silent skip.
func Unavailable(t TB, part string, err error) {
	t.Helper()
	t.Fatalf("%s is needed and couldn't be started: %v\n(%s=%s skips the tests that need it)", part, err, SkipVariable, part)
}

// Tick is the pause between two looks at a condition.
const Tick = 20 * time.Millisecond

// Eventually waits until cond holds (true, or a nil error) and fails the test when it still doesn't after timeout. The
// failure shows what was waited for and cond's last error. cond runs on the calling goroutine, at least once.
func Eventually[F func() bool | func() error | func() (bool, error)](t TB, timeout time.Duration, what string, cond F) {
	t.Helper()
	look := condition(any(cond))
	deadline := time.Now().Add(timeout)
	for {
		ok, err := look()
		if ok && err == nil {
			return
		}
		if !time.Now().Before(deadline) {
			reason := ""
			if err != nil {
				reason = fmt.Sprintf(": %v", err)
			}
			t.Fatalf("not within %v: %s%s", timeout, what, reason)
			return
		}
		time.Sleep(Tick)
	}
}

func condition(cond any) func() (bool, error) {
	switch f := cond.(type) {
	case func() bool:
		return func() (bool, error) { return f(), nil }
	case func() error:
		return func() (bool, error) { err := f(); return err == nil, err }
	default:
		return cond.(func() (bool, error))
	}
}
