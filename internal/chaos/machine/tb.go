package machine

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// attempt runs helpers that want a test, and returns what would have failed it. What they leave to the end of the test
// happens at the end of f.
func attempt(f func(t testbed.TB)) (err error) {
	a := &attempted{}
	defer func() {
		for i := len(a.cleanups) - 1; i >= 0; i-- {
			a.cleanups[i]()
		}
		switch p := recover(); {
		case p == nil:
			err = a.err
		case p == any(a):
			err = a.err
		default:
			panic(p)
		}
	}()
	f(a)
	return nil
}

// attempted is a testbed.TB without a test.
type attempted struct {
	err      error
	cleanups []func()
}

func (a *attempted) Helper()             {}
func (a *attempted) Name() string        { return "chaos" }
func (a *attempted) Failed() bool        { return a.err != nil }
func (a *attempted) Cleanup(f func())    { a.cleanups = append(a.cleanups, f) }
func (a *attempted) Logf(string, ...any) {}

func (a *attempted) Errorf(format string, args ...any) {
	a.err = errors.Join(a.err, fmt.Errorf(format, args...))
}

func (a *attempted) Fatalf(format string, args ...any) {
	a.Errorf(format, args...)
	panic(a)
}

func (a *attempted) Skipf(format string, args ...any) { a.Fatalf(format, args...) }
