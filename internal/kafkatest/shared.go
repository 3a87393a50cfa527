package kafkatest

import (
	"context"
	"os"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// TB is what the helpers need of a test.
type TB = testbed.TB

const part = "kafka"

// Run runs the tests of a binary and closes the servers they share, of this package and of its neighbours.
func Run(m interface{ Run() int }) int { return testbed.Run(m) }

// Shared is the broker that all tests of the binary share; the first call starts it. A test that stops it needs one of
// its own: NewCluster.
func Shared(t TB) *Cluster {
	t.Helper()
	return plain.cluster(t)
}

// The users of Secured: Alice may do everything, Mallory what an ACL allows.
const (
	Alice           = "alice"
	AlicePassword   = "wonderland"
	Mallory         = "mallory"
	MalloryPassword = "a-secret"
)

// Secured is a second shared broker, which has the listeners SASL, TLS, MutualTLS and SASLTLS besides Plain, and
// authorisation. Alice, the client certificate, and who comes without a name may do everything.
func Secured(t TB) *Cluster {
	t.Helper()
	return secured.cluster(t)
}

var plain = sharedCluster{}

var secured = sharedCluster{options: Options{
	Users: map[string]string{Alice: AlicePassword, Mallory: MalloryPassword}, TLS: true,
	Superusers: []string{"User:" + Alice, "User:CN=client"},
}}

type sharedCluster struct {
	options Options

	once    sync.Once
	started *Cluster
	err     error
}

func (s *sharedCluster) cluster(t TB) *Cluster {
	t.Helper()
	testbed.Require(t, part)
	s.once.Do(func() {
		s.started, s.err = StartCluster(context.Background(), testOptions(s.options))
		if s.err == nil {
			testbed.OnExit(s.started.Close)
		}
	})
	if s.err != nil {
		testbed.Unavailable(t, part, s.err)
	}
	return s.started
}

// NewCluster starts brokers for one test, closed at the test's end. When the test failed, the ends of their logs are
// shown.
func NewCluster(t TB, o Options) *Cluster {
	t.Helper()
	testbed.Require(t, part)
	c, err := StartCluster(context.Background(), testOptions(o))
	if err != nil {
		testbed.Unavailable(t, part, err)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if t.Failed() {
				t.Logf("the end of the log of kafka node %d:\n%s", n.id, n.logTail())
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	return c
}

func testOptions(o Options) Options {
	o.Install = true
	if o.Out == nil {
		o.Out = os.Stderr
	}
	return o
}
