package testbed

import (
	"fmt"
	"os"
	"sync"
)

var closers struct {
	mu    sync.Mutex
	funcs []func() error
}

// OnExit registers what must be closed at the end of the test binary. The order is last in, first out.
func OnExit(f func() error) {
	closers.mu.Lock()
	defer closers.mu.Unlock()
	closers.funcs = append(closers.funcs, f)
}

// Run runs the tests of a binary, then closes every server that they started, of whatever kind:
//
//	func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }
//
// It returns the exit code: m's, or 1 when something couldn't be closed.
func Run(m interface{ Run() int }) int {
	code := m.Run()
	if err := closeAll(); err != nil && code == 0 {
		code = 1
	}
	return code
}

// Closing makes m close the servers at the end of its Run, for goleak.VerifyTestMain(testbed.Closing(m)).
func Closing(m interface{ Run() int }) interface{ Run() int } { return closing{m} }

type closing struct{ m interface{ Run() int } }

func (c closing) Run() int { return Run(c.m) }

func closeAll() error {
	closers.mu.Lock()
	funcs := closers.funcs
	closers.funcs = nil
	closers.mu.Unlock()
	var last error
	for i := len(funcs) - 1; i >= 0; i-- {
		if err := funcs[i](); err != nil {
			fmt.Fprintln(os.Stderr, "testbed:", err)
			last = err
		}
	}
	return last
}
