package redistest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// NewReplica starts a replica of the server for one test and waits until it is in sync.
func (s *Server) NewReplica(t TB) *Server {
	t.Helper()
	o := Options{Password: s.options.Password, Settings: map[string]string{"replicaof": fmt.Sprintf("127.0.0.1 %d", s.place.Port)}}
	for name, value := range s.options.Settings {
		if _, ok := o.Settings[name]; !ok {
			o.Settings[name] = value
		}
	}
	r := NewServer(t, o)
	testbed.Eventually(t, startTimeout, "a replica in sync", func() bool {
		online := strings.Count(fmt.Sprint(s.Do(t, "info", "replication")), "state=online")
		return r.Info(t, "replication", "master_link_status") == "up" && fmt.Sprint(online) == s.Info(t, "replication", "connected_slaves")
	})
	return r
}

// Sentinel is a master with a replica, and three Sentinels that watch them under the name Master.
type Sentinel struct {
	Servers   [2]*Server // the first begins as the master
	Sentinels [3]*Server
}

// Master is the name by which Sentinels know their master.
const Master = "orders"

// NewSentinel starts a master, a replica and three Sentinels for one test, and waits until the Sentinels know all of them.
// They take a master that is silent for half a second to be down. o is the servers'.
func NewSentinel(t TB, o Options) *Sentinel {
	t.Helper()
	c := new(Sentinel)
	c.Servers[0] = NewServer(t, o)
	c.Servers[1] = c.Servers[0].NewReplica(t)
	for i := range c.Sentinels {
		lines := []string{
			fmt.Sprintf("monitor %s 127.0.0.1 %d 2", Master, c.Servers[0].place.Port), // first: the others name what it names
			"down-after-milliseconds " + Master + " 500",
			"failover-timeout " + Master + " 5000",
		}
		if o.Password != "" {
			lines = append(lines, "auth-pass "+Master+" "+o.Password)
		}
		c.Sentinels[i] = NewServer(t, Options{sentinel: lines})
	}
	testbed.Eventually(t, startTimeout, "the Sentinels to know each other and the replica", func() bool {
		for _, s := range c.Sentinels {
			if info := s.Info(t, "sentinel", "master0"); !strings.Contains(info, "slaves=1,sentinels=3") {
				return false
			}
		}
		return true
	})
	return c
}

// Addrs are the addresses of the Sentinels.
func (c *Sentinel) Addrs() []string { return addrs(c.Sentinels[:]) }

// AwaitMaster waits until the Sentinels call the server their master, and it is one.
func (c *Sentinel) AwaitMaster(t TB, s *Server, timeout time.Duration) {
	t.Helper()
	testbed.Eventually(t, timeout, "the Sentinels to change their master", func() bool {
		for _, sentinel := range c.Sentinels {
			if !strings.Contains(sentinel.Info(t, "sentinel", "master0"), "address="+s.Addr()) {
				return false
			}
		}
		return s.Info(t, "replication", "role") == "master"
	})
}

// Cluster is a Redis Cluster of masters.
type Cluster struct{ Nodes []*Server }

const slots = 16384

// NewCluster starts a cluster of so many masters for one test, and waits until all of them serve. o is the nodes'.
func NewCluster(t TB, masters int, o Options) *Cluster {
	t.Helper()
	c := new(Cluster)
	settings := map[string]string{"cluster-enabled": "yes", "cluster-node-timeout": "2000"}
	maps.Copy(settings, o.Settings)
	o.Settings, o.bus = settings, true
	for range masters {
		c.Nodes = append(c.Nodes, NewServer(t, o))
	}
	first := c.Nodes[0]
	for i, n := range c.Nodes {
		n.Do(t, "cluster", "addslotsrange", i*slots/masters, (i+1)*slots/masters-1)
		if i > 0 {
			first.Do(t, "cluster", "meet", "127.0.0.1", n.place.Port, n.bus.Port)
		}
	}
	c.AwaitOK(t, masters)
	return c
}

// AwaitOK waits until every node says that the cluster is well and has so many nodes.
func (c *Cluster) AwaitOK(t TB, nodes int) {
	t.Helper()
	testbed.Eventually(t, startTimeout, "the cluster to be well", func() bool {
		for _, n := range c.Nodes {
			info := fmt.Sprint(n.Do(t, "cluster", "info"))
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes)) {
				return false
			}
		}
		return true
	})
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// Owner is the position of the node that has the stream.
func (c *Cluster) Owner(t TB, stream string) int {
	t.Helper()
	slot := int(c.Nodes[0].Do(t, "cluster", "keyslot", stream).(int64))
	for i, n := range c.Nodes {
		for _, raw := range n.Do(t, "cluster", "slots").([]any) {
			r := raw.([]any)
			node := r[2].([]any)
			if int64(slot) >= r[0].(int64) && int64(slot) <= r[1].(int64) && node[1].(int64) == int64(n.place.Port) {
				return i
			}
		}
	}
	t.Fatalf("nobody has slot %d", slot)
	return 0
}

// StreamOn is a name that no other test uses, of a stream that the node has.
func (c *Cluster) StreamOn(t TB, node int) string {
	t.Helper()
	for {
		name := StreamName(t)
		if c.Owner(t, name) == node {
			return name
		}
	}
}

// ID is a node's name in the cluster.
func (c *Cluster) ID(t TB, node int) string {
	t.Helper()
	return c.Nodes[node].Do(t, "cluster", "myid").(string)
}

func addrs(servers []*Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// Join makes the cluster's nodes known to another cluster, which then has them too.
func (c *Cluster) Join(t TB, other *Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		other.Nodes[0].Do(t, "cluster", "meet", "127.0.0.1", n.place.Port, n.bus.Port)
	}
	all := Cluster{Nodes: append(append([]*Server(nil), other.Nodes...), c.Nodes...)}
	all.AwaitOK(t, len(all.Nodes))
}
