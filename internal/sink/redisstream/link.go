package redisstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clientName is how the relay's connections are called in CLIENT LIST, where it may say so.
const clientName = "cdc-relay"

// quiet drops what go-redis would print: its errors come back to us anyway.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// clientOptions are go-redis' options. The configuration must be valid.
func (c *Config) clientOptions() (*redis.UniversalOptions, error) {
	p := c.place(func(string, string, ...any) {})
	o := &redis.UniversalOptions{
		Addrs: p.addrs, MasterName: p.master, DB: p.database, Username: p.username, Password: p.password,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,

		// A lost answer doesn't say whether the entries are there: what is sent again is the relay's to decide.
		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true,
		DialTimeout:           c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		ReadTimeout: c.Timeout + c.waitTimeout(),
		// One pool, with a connection for each call and some for probes.
		PoolSize: c.Connections + 2, PipelinePoolSize: -1,
		// Nothing is pushed to us. What a connection says beyond that could be forbidden to the relay's user.
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			if err := cn.ClientSetName(ctx, clientName).Err(); err != nil && serverCode(err) == "" {
				return err // lost; that it may not have a name is no harm
			}
			return nil
		},
		IsClusterMode: p.cluster,
	}
	var err error
	if p.tls {
		o.TLSConfig, err = c.TLS.config()
	}
	return o, err
}

// waitTimeout is how long the server itself may hold back an answer.
func (c *Config) waitTimeout() (wait time.Duration) {
	if c.WaitReplicas > 0 {
		wait = c.WaitTimeout
	}
	return wait
}

func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // an operator's explicit wish
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("sink.redis.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("sink.redis.tls.ca_file: %s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("sink.redis.tls.cert_file, key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// link is the connections to the servers, from one Probe to the next.
type link struct {
	options *redis.UniversalOptions
	single  *redis.Client        // of one server, by its address or by Sentinels
	cluster *redis.ClusterClient // the other is nil
	users   sync.WaitGroup       // calls of Publish; guarded by Sink.mu against those who wait

	mu      sync.Mutex // guards the rest
	servers map[*redis.Client]*server
	nodes   map[string]*redis.Client // of a Cluster, by the address in a redirection
	closed  bool
}

// newLink connects to nothing yet.
func newLink(o *redis.UniversalOptions) *link {
	silence()
	l := &link{options: o, servers: map[*redis.Client]*server{}, nodes: map[string]*redis.Client{}}
	switch {
	case o.MasterName != "":
		l.single = redis.NewFailoverClient(o.Failover())
	case o.IsClusterMode:
		l.cluster = redis.NewClusterClient(o.Cluster())
	default:
		l.single = redis.NewClient(o.Simple())
	}
	return l
}

// owner is the server that has a stream.
func (l *link) owner(ctx context.Context, stream string) (*server, error) {
	client := l.single
	if l.cluster != nil {
		var err error
		if client, err = l.cluster.MasterForKey(ctx, stream); err != nil {
			return nil, err
		}
	}
	return l.known(client), nil
}

func (l *link) known(client *redis.Client) *server {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.servers[client]
	if s == nil {
		s = &server{Client: client}
		l.servers[client] = s
	}
	return s
}

// at is the node of a Cluster that a redirection names. It may be one that has no slots yet, which go-redis doesn't know.
func (l *link) at(ctx context.Context, addr string) (*server, error) {
	l.cluster.ReloadState(ctx) // in the background
	l.mu.Lock()
	client := l.nodes[addr]
	if client == nil {
		if l.closed {
			l.mu.Unlock()
			return nil, redis.ErrClosed
		}
		o := l.options.Simple()
		o.Addr = addr
		client = redis.NewClient(o)
		l.nodes[addr] = client
	}
	l.mu.Unlock()
	return l.known(client), nil
}

// close closes all connections; whoever uses one gets an error.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	// What can go wrong is of no use to anybody.
	if l.cluster != nil {
		_ = l.cluster.Close()
	} else {
		_ = l.single.Close()
	}
	for _, client := range l.nodes {
		_ = client.Close()
	}
}
