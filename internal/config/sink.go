package config

import "time"

// Sink is the broker. Only the section that Kind names matters.
type Sink struct {
	Kind   string    `yaml:"kind" default:"kafka" oneof:"kafka redis stdout discard"`
	Format string    `yaml:"format" default:"raw" oneof:"raw cloudevents cloudevents-json"`
	Kafka  KafkaSink `yaml:"kafka"`
	Redis  RedisSink `yaml:"redis"`
}

// KafkaSink is the producer.
type KafkaSink struct {
	Brokers []string `yaml:"brokers" default:"localhost:9092"`
	// Acks and Idempotent other than the defaults can lose or reorder events, so ordering.mode: key refuses them.
	Acks        string `yaml:"acks" default:"all" oneof:"all leader"`
	Idempotent  bool   `yaml:"idempotent" default:"true"`
	Compression string `yaml:"compression" default:"none" oneof:"none gzip snappy lz4 zstd"`
	// Partitioner murmur2 chooses the partition that the Java client would choose.
	Partitioner string `yaml:"partitioner" default:"murmur2" oneof:"murmur2 crc32 fnv1a round_robin random"`
	ClientID    string `yaml:"client_id" default:"cdc-relay"`
	// Version is the newest protocol to speak, such as 2.8.0; auto: the newest that is known.
	Version string `yaml:"version" default:"auto"`
	// Timeout bounds each wait for a broker.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"100ms"`
	// MaxMessageBytes is the largest message that is tried; the broker and the topic have bounds of their own.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" default:"1MiB" min:"1KiB" max:"99MiB"`
	TLS             TLS   `yaml:"tls"`
	SASL            SASL  `yaml:"sasl"`
}

// RedisSink is Redis Streams.
type RedisSink struct {
	// URL is redis://, rediss:// (TLS) or unix://, with user, password and database.
	URL     string `yaml:"url" default:"redis://localhost:6379/0" secret:"url"`
	URLFile string `yaml:"url_file"`
	// Addrs are the Sentinels, when MasterName is set, otherwise nodes of a Cluster; then URL says only who the relay is.
	Addrs                []string `yaml:"addrs"`
	MasterName           string   `yaml:"master_name"`
	SentinelUsername     string   `yaml:"sentinel_username"`
	SentinelPassword     string   `yaml:"sentinel_password" secret:"all"`
	SentinelPasswordFile string   `yaml:"sentinel_password_file"`
	// MaxLen trims each stream to about this many entries, MaxAge to about this age, read or not. 0: never.
	MaxLen int           `yaml:"max_len" default:"0" min:"0"`
	MaxAge time.Duration `yaml:"max_age" default:"0" min:"0s"`
	// TrimExact trims exactly, at a price.
	TrimExact bool `yaml:"trim_exact" default:"false"`
	// Idempotent lets the server drop what was sent twice within a moment, where it can (Redis 8.6 and later).
	Idempotent bool `yaml:"idempotent" default:"true"`
	// WaitReplicas must have an entry, within WaitTimeout, before it counts as published.
	WaitReplicas int           `yaml:"wait_replicas" default:"0" min:"0"`
	WaitTimeout  time.Duration `yaml:"wait_timeout" default:"1s" min:"1ms"`
	// MaxMessageBytes is the largest entry that is tried.
	MaxMessageBytes Bytes `yaml:"max_message_bytes" default:"16MiB" min:"1KiB" max:"256MiB"`
	// Timeout bounds each wait for a server.
	Timeout time.Duration `yaml:"timeout" default:"5s" min:"100ms"`
	TLS     TLS           `yaml:"tls"`
}

// TLS is how a broker's connection is secured. The broker's certificate is verified unless InsecureSkipVerify is set.
type TLS struct {
	Enabled bool `yaml:"enabled" default:"false"`
	// CAFile holds PEM certificates that are trusted instead of the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the client's own.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name to verify when it isn't the one in the address.
	ServerName         string `yaml:"server_name"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify" default:"false"`
}

// SASL is how the relay proves who it is.
type SASL struct {
	Mechanism    string `yaml:"mechanism" default:"none" oneof:"none plain scram-sha-256 scram-sha-512"`
	Username     string `yaml:"username"`
	Password     string `yaml:"password" secret:"all"`
	PasswordFile string `yaml:"password_file"`
}
