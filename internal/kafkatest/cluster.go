package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// How long the brokers may take to start, and one to stop.
const (
	startTimeout = 90 * time.Second
	stopTimeout  = 60 * time.Second
)

// Options say what differs from one plain broker.
type Options struct {
	Nodes      int               // brokers, each a controller too; default 1
	Properties map[string]string // of server.properties, over the defaults
	Users      map[string]string // names and passwords for SASL, by PLAIN and SCRAM
	TLS        bool              // makes certificates
	Superusers []string          // principals such as User:alice; turns authorisation on: everybody else needs an ACL, except who comes without a name

	// Via is called for every node before it starts, with the node's address. It returns another address that leads
	// there, such as a proxy's, which the node then tells the clients of the listener Proxied.
	Via func(target string) (addr string, err error)

	JVM     []string  // replaces the flags that make a small, quickly started JVM
	Install bool      // as root, install Debian's packages of Java and Maven when they are missing
	Out     io.Writer // gets a line about what takes long; nil: nobody
}

var smallJVM = []string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}

// Cluster is one or more brokers. Its methods may be called from several goroutines, those that start and stop a node
// only one at a time for a node.
type Cluster struct {
	id           string
	kit          kit
	options      Options
	certificates *Certificates
	nodes        []*node
	closing      sync.Once
}

// StartCluster starts brokers and waits until all of them serve. Close ends them; so does the end of this process.
func StartCluster(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o, id: clusterID()}
	c.options.Nodes = max(1, o.Nodes)
	if o.Out == nil {
		c.options.Out = io.Discard
	}
	if o.JVM == nil {
		c.options.JVM = smallJVM
	}
	var err error
	if c.kit, err = findKit(ctx, o.Install, c.options.Out); err != nil {
		return nil, err
	}
	err = c.prepare()
	if err == nil {
		err = c.startAll(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a kafka cluster: %w", err), c.Close())
	}
	return c, nil
}

// prepare reserves all ports before the first file is written, since every node's file names all nodes.
func (c *Cluster) prepare() error {
	for i := range c.options.Nodes {
		n, err := newNode(i+1, c.options.listeners())
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		if c.options.Via != nil {
			if n.via, err = c.options.Via(n.places[Proxied].Addr()); err != nil {
				return err
			}
		}
	}
	if c.options.TLS {
		var err error
		if c.certificates, err = testbed.NewCertificates(c.nodes[0].places[Plain].Dir); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.format(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, n := range c.nodes {
		if err := n.start(c.kit, c.options.JVM); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.ready(ctx, len(c.nodes)); err != nil {
			return err
		}
	}
	return c.addScramUsers(ctx)
}

// Start starts a stopped node (the first is 0) on its old ports with its old data, and waits until it serves. A node that
// runs is left alone.
func (c *Cluster) Start(ctx context.Context, node int) error {
	n := c.nodes[node]
	if n.running() {
		return nil
	}
	if err := n.start(c.kit, c.options.JVM); err != nil {
		return err
	}
	return n.ready(ctx, 1)
}

// Stop shuts a node down in order: it hands its partitions over first. With the last controllers gone that takes long.
func (c *Cluster) Stop(node int) error { return c.nodes[node].stop(syscall.SIGTERM, stopTimeout) }

// Kill ends a node at once (SIGKILL).
func (c *Cluster) Kill(node int) error { return c.nodes[node].stop(syscall.SIGKILL, stopTimeout) }

// Pid is a node's process id, for SIGSTOP and the like.
func (c *Cluster) Pid(node int) int { return c.nodes[node].pid() }

// Nodes is the number of nodes.
func (c *Cluster) Nodes() int { return len(c.nodes) }

// Log is the path of a node's log.
func (c *Cluster) Log(node int) string { return c.nodes[node].file("log") }

// Brokers are the addresses of all nodes on the plain listener.
func (c *Cluster) Brokers() []string { return c.BrokersOn(Plain) }

// BrokersOn are the addresses of all nodes on a listener that the options opened.
func (c *Cluster) BrokersOn(l Listener) []string {
	var addrs []string
	for _, n := range c.nodes {
		addr := n.via
		if l != Proxied {
			addr = n.places[l].Addr()
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

// Certificates are the client's files, nil without Options.TLS.
func (c *Cluster) Certificates() *Certificates { return c.certificates }

// Close kills the brokers and removes their directories. Further calls do nothing.
func (c *Cluster) Close() (err error) {
	c.closing.Do(func() {
		for _, n := range c.nodes {
			err = errors.Join(err, n.close())
		}
	})
	return err
}

// clusterID is a random one in Kafka's form, 16 bytes in base64.
func clusterID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return base64.RawURLEncoding.EncodeToString(id)
}
