package redisstream

import (
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// explain adds to an error what an operator can do about it.
func (c *Config) explain(err error) error {
	if hint := c.hint(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

func (c *Config) hint(err error) string {
	var op *net.OpError
	switch v := classify(err); v.reason {
	case "out_of_memory":
		return "redis has reached maxmemory: let consumers trim what they have read, set sink.redis.max_len or max_age, or raise maxmemory"
	case "persistence_failing":
		return "redis can't save its data: look at its log and its disk"
	case "read_only":
		return "this is a replica: point sink.redis at the master, or at its Sentinels with master_name"
	case "not_enough_replicas":
		return "start the replicas, or lower the server's min-replicas-to-write or sink.redis.wait_replicas"
	case "authentication_failed":
		return "look at the user and the password in sink.redis.url"
	case "not_permitted":
		return "grant the relay's user what it needs: ACL SETUSER <user> +@connection +@transaction +xadd +wait +info +time ~<streams>"
	case "cluster_down":
		return "look at CLUSTER INFO: some slots have no node"
	case "slot_moved":
		if len(c.Addrs) == 0 {
			return "this is a node of a Cluster: set sink.redis.addrs"
		}
	case "tls_failed":
		return "look at sink.redis.tls: ca_file must hold the authority of the server's certificate, server_name the name it was made for; a server without TLS needs redis://"
	case "connection_lost":
		switch tls := c.TLS.Enabled; {
		case errors.As(err, &op) && op.Op == "dial" || c.MasterName != "":
			return "look at sink.redis.url and addrs, and whether they can be reached from here"
		case tls && c.TLS.CertFile == "":
			return "if the server asks for a client's certificate, set sink.redis.tls.cert_file and key_file"
		case !tls:
			return "if the server speaks TLS on this port, use rediss://"
		}
	}
	return ""
}

// redirection is where a Cluster's node says a stream is.
func redirection(err error) (addr string, asking, ok bool) {
	addr, ok = redis.IsMovedError(err)
	if !ok {
		addr, asking = redis.IsAskError(err)
	}
	host, port, splitErr := net.SplitHostPort(addr)
	return addr, asking, splitErr == nil && host != "" && port != ""
}
