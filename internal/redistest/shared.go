package redistest

import (
	"context"
	"os"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// TB is what the helpers need of a test.
type TB = testbed.TB

const part = "redis"

// Run runs the tests of a binary and closes the servers they share, of this package and of its neighbours.
func Run(m interface{ Run() int }) int { return testbed.Run(m) }

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared is the server that all tests of the binary share; the first call starts it. A test that stops it, or changes its
// settings, needs one of its own: NewServer.
func Shared(t TB) *Server {
	t.Helper()
	testbed.Require(t, part)
	shared.once.Do(func() {
		shared.server, shared.err = StartServer(context.Background(), testOptions(Options{}))
		if shared.err == nil {
			testbed.OnExit(shared.server.Close)
		}
	})
	if shared.err != nil {
		testbed.Unavailable(t, part, shared.err)
	}
	return shared.server
}

// NewServer starts a server for one test, closed at the test's end. When the test failed, the end of its log is shown.
func NewServer(t TB, o Options) *Server {
	t.Helper()
	testbed.Require(t, part)
	s, err := StartServer(context.Background(), testOptions(o))
	if err != nil {
		testbed.Unavailable(t, part, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of redis on %s:\n%s", s.Addr(), s.logTail())
		}
		if err := s.Close(); err != nil {
			t.Errorf("close redis: %v", err)
		}
	})
	return s
}

func testOptions(o Options) Options {
	o.Install = true
	if o.Out == nil {
		o.Out = os.Stderr
	}
	return o
}
