package pgtest

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// TB is what the helpers need of a test.
type TB = testbed.TB

const part = "postgres"

var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Run runs the tests of a binary and closes the servers they share, of this package and of its neighbours.
func Run(m interface{ Run() int }) int { return testbed.Run(m) }

// Eventually waits until cond holds and fails the test when it doesn't within timeout: testbed.Eventually.
func Eventually[F func() bool | func() error | func() (bool, error)](t TB, timeout time.Duration, what string, cond F) {
	t.Helper()
	testbed.Eventually(t, timeout, what, cond)
}

// Shared is the cluster that all tests of the binary share; the first call starts it. A test that stops it, or changes
// its settings, needs one of its own: NewCluster.
func Shared(t TB) *Cluster {
	t.Helper()
	testbed.Require(t, part)
	shared.once.Do(func() {
		shared.cluster, shared.err = StartCluster(context.Background(), testOptions(Options{}))
		if shared.err == nil {
			testbed.OnExit(shared.cluster.Close)
		}
	})
	if shared.err != nil {
		testbed.Unavailable(t, part, shared.err)
	}
	return shared.cluster
}

// NewCluster starts a cluster for one test, closed at the test's end. When the test failed, the end of the server's log
// is shown.
func NewCluster(t TB, o Options) *Cluster {
	t.Helper()
	testbed.Require(t, part)
	c, err := StartCluster(context.Background(), testOptions(o))
	if err != nil {
		testbed.Unavailable(t, part, err)
	}
	closeWithTest(t, c)
	return c
}

// NewStandby is Cluster.Standby for one test.
func NewStandby(t TB, primary *Cluster, name string) *Cluster {
	t.Helper()
	s, err := primary.Standby(context.Background(), name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	closeWithTest(t, s)
	return s
}

func closeWithTest(t TB, c *Cluster) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of postgres on port %d:\n%s", c.Port(), c.logTail())
		}
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
}

func testOptions(o Options) Options {
	o.Install = true
	if o.Out == nil {
		o.Out = os.Stderr
	}
	return o
}
