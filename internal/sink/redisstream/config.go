package redisstream

import (
	"errors"
	"fmt"
	"time"
)

// Config are the settings below sink.redis.
type Config struct {
	// URL is redis://user:password@host:port/database, rediss:// for TLS, or unix://user:password@/path?db=0. For Sentinel
	// it may name them: redis://user:password@sentinel:26379/0?master_name=orders&addr=sentinel2:26379. Default:
	// redis://localhost:6379/0.
	URL string `yaml:"url"`

	// Addrs are host:port of the Sentinels when MasterName is set, otherwise of some nodes of a Cluster. The URL then
	// gives the user, the password and the database only.
	Addrs []string `yaml:"addrs"`
	// MasterName is the name by which the Sentinels know the master.
	MasterName string `yaml:"master_name"`
	// SentinelUsername and SentinelPassword are for the Sentinels themselves, where they ask for them.
	SentinelUsername string `yaml:"sentinel_username"`
	SentinelPassword string `yaml:"sentinel_password"`

	// MaxLen trims each stream to about this many entries, whether they were read or not. 0: never. Default: 0.
	MaxLen int64 `yaml:"max_len"`
	// MaxAge trims entries that are about this old, by the server's clock, whether they were read or not. 0: never.
	// Default: 0.
	MaxAge time.Duration `yaml:"max_age"`
	// TrimExact trims to exactly MaxLen or MaxAge, which costs the server more: otherwise it drops whole nodes of its tree
	// only, of 100 entries as a rule. Default: false.
	TrimExact bool `yaml:"trim_exact"`

	// Idempotent makes the server drop an entry whose message id it has seen a moment ago, where it can: Redis 8.6 and
	// later. nil: true.
	Idempotent *bool `yaml:"idempotent"`

	// WaitReplicas is how many replicas must have an entry before it counts as published. Default: 0.
	WaitReplicas int `yaml:"wait_replicas"`
	// WaitTimeout is how long to wait for them. Default: 1 s.
	WaitTimeout time.Duration `yaml:"wait_timeout"`

	// MaxMessageBytes is the largest entry that is tried, in bytes of all its fields. A larger event is DEAD at once.
	// Redis closes the connection on a field larger than its proto-max-bulk-len (512 MiB), which looks like an outage.
	// Default: 16 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes"`

	// Timeout bounds each wait for a server: connecting, one batch written, its replies. Publish gives up after three of
	// them. Default: 5 s.
	Timeout time.Duration `yaml:"timeout"`

	TLS TLS `yaml:"tls"`

	// Connections is how many calls of Publish there can be at once. Default: 32.
	Connections int `yaml:"-"`
	// Ordered is ordering.mode: key.
	Ordered bool `yaml:"-"`
}

// TLS is how the connections are secured. rediss:// enables it too.
type TLS struct {
	Enabled bool `yaml:"enabled"`
	// CAFile holds the certificates, in PEM, that may sign a server's. Default: those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile, in PEM, prove to the server who the relay is.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name that a server's certificate must have. Default: the host it is reached by.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify takes any certificate. For experiments.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

const (
	defaultURL             = "redis://localhost:6379/0"
	defaultMaxMessageBytes = 16 << 20
	maxMessageBytes        = 256 << 20
	defaultTimeout         = 5 * time.Second
	defaultWaitTimeout     = time.Second
	defaultConnections     = 32
)

// WithDefaults is a copy in which everything that was left out is filled in.
func (c Config) WithDefaults() Config {
	if c.URL == "" {
		c.URL = defaultURL
	}
	if c.Idempotent == nil {
		yes := true
		c.Idempotent = &yes
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = defaultMaxMessageBytes
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = defaultWaitTimeout
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	return c
}

// Validate reports everything that is wrong with a filled configuration, each with its key.
func (c *Config) Validate() error {
	var problems []error
	wrong := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("sink.redis.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	p := c.place(wrong)
	if c.MaxLen < 0 {
		wrong("max_len", "must not be negative")
	}
	if c.MaxAge < 0 {
		wrong("max_age", "must not be negative")
	}
	if c.MaxLen > 0 && c.MaxAge > 0 {
		wrong("max_age", "and max_len are both set: XADD trims by one of them, keep one")
	}
	if c.TrimExact && c.MaxLen == 0 && c.MaxAge == 0 {
		wrong("trim_exact", "has an effect with max_len or max_age only")
	}
	if c.WaitReplicas < 0 {
		wrong("wait_replicas", "must not be negative")
	}
	if c.WaitTimeout < time.Millisecond {
		wrong("wait_timeout", "must be at least 1ms, not %v", c.WaitTimeout) // to Redis, 0 is for ever
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > maxMessageBytes {
		wrong("max_message_bytes", "must be from 1024 to %d bytes, not %d", maxMessageBytes, c.MaxMessageBytes)
	}
	if c.Timeout < 100*time.Millisecond {
		wrong("timeout", "must be at least 100ms, not %v", c.Timeout)
	}
	if c.Connections < 0 {
		wrong("connections", "must not be negative")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		wrong("tls", "cert_file and key_file need each other")
	}
	if !p.tls && c.TLS != (TLS{}) {
		wrong("tls.enabled", "must be true, or url begin with rediss://, for the other settings of tls to have an effect")
	}
	return errors.Join(problems...)
}
