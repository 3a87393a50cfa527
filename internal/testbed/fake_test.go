package testbed_test

import (
	"fmt"
	"testing"
)

// fake is a test that can fail without failing this one.
type fake struct {
	*testing.T
	fatal, skip string
}

type stop struct{}

func (f *fake) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	panic(stop{})
}

func (f *fake) Skipf(format string, args ...any) {
	f.skip = fmt.Sprintf(format, args...)
	panic(stop{})
}

// run runs a test's function and returns how it ended.
func run(t *testing.T, test func(*fake)) *fake {
	f := &fake{T: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != (stop{}) {
				panic(r)
			}
		}()
		test(f)
	}()
	return f
}
