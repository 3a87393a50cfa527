package kafka

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Config are the settings below sink.kafka.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; the others are learned from them. Default: localhost:9092.
	Brokers []string `yaml:"brokers"`

	// Acks says whose acknowledgement counts: all (every replica in sync) or leader, with which events are lost when the
	// leader dies. Default: all. There is no none: an event would be PUBLISHED that no broker has.
	Acks string `yaml:"acks"`

	// Idempotent keeps sarama's own retries from doubling and reordering records. It needs acks: all, and for brokers
	// before 3.0 the right IdempotentWrite on the cluster. nil: true.
	Idempotent *bool `yaml:"idempotent"`

	// Compression of a batch: none, gzip, snappy, lz4 or zstd. Default: none. lz4 or zstd pay off for texts.
	Compression string `yaml:"compression"`

	// Partitioner chooses the partition from the key: murmur2 as the Java client does, crc32 as librdkafka does
	// (consistent_random), fnv1a as sarama does by default; round_robin and random ignore the key. Events without a key
	// go to a random partition. Default: murmur2.
	Partitioner string `yaml:"partitioner"`

	// ClientID names the relay in the broker's logs, metrics and quotas. Default: cdc-relay.
	ClientID string `yaml:"client_id"`

	// Version is the newest protocol to speak, such as 2.8.0; the broker's own is taken when that is older. auto is the
	// newest that sarama covers fully. Default: auto.
	Version string `yaml:"version"`

	// MaxMessageBytes is the largest message that is tried, key and headers included, in bytes. The broker and the topic
	// have limits of their own (message.max.bytes, max.message.bytes: 1 MiB by default); raise it with them. A larger
	// event is DEAD at once. Default: 1 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes"`

	// Timeout bounds each wait for a broker: connecting, one request, one answer. Publish gives up after three of them.
	// Default: 10 s.
	Timeout time.Duration `yaml:"timeout"`

	TLS  TLS  `yaml:"tls"`
	SASL SASL `yaml:"sasl"`

	// Ordered is ordering.mode: key. It refuses settings that lose or reorder events.
	Ordered bool `yaml:"-"`
}

// TLS is how the connections are secured.
type TLS struct {
	// Enabled turns TLS on.
	Enabled bool `yaml:"enabled"`
	// CAFile holds the certificates, in PEM, that may sign a broker's. Default: those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile, in PEM, prove to the broker who the relay is.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name that a broker's certificate must have. Default: the host it is reached by.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify takes any certificate. For experiments.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// SASL is how the relay proves to the broker who it is.
type SASL struct {
	// Mechanism is plain, scram-sha-256, scram-sha-512, or none. Default: none.
	Mechanism string `yaml:"mechanism"`
	Username  string `yaml:"username"`
	// Password, or the file that holds it, without line ends and blanks at its end.
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
}

const (
	defaultMaxMessageBytes = 1 << 20
	defaultTimeout         = 10 * time.Second

	// maxMessageBytes is what sarama can put into one request.
	maxMessageBytes = 100<<20 - 10<<10
)

// WithDefaults is a copy in which everything that was left out is filled in.
func (c Config) WithDefaults() Config {
	if len(c.Brokers) == 0 {
		c.Brokers = []string{"localhost:9092"}
	}
	if c.Idempotent == nil {
		yes := true
		c.Idempotent = &yes
	}
	for field, value := range map[*string]string{
		&c.Acks: "all", &c.Compression: "none", &c.Partitioner: "murmur2", &c.ClientID: "cdc-relay", &c.Version: "auto", &c.SASL.Mechanism: "none",
	} {
		if *field == "" {
			*field = value
		}
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = defaultMaxMessageBytes
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return c
}

var (
	acks         = map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "leader": sarama.WaitForLocal}
	compressions = map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}
	partitioners = map[string]sarama.PartitionerConstructor{"murmur2": sarama.NewMurmur2Partitioner, "crc32": sarama.NewConsistentCRCHashPartitioner,
		"fnv1a": sarama.NewHashPartitioner, "round_robin": sarama.NewRoundRobinPartitioner, "random": sarama.NewRandomPartitioner}
	mechanisms = map[string]sarama.SASLMechanism{"none": "", "plain": sarama.SASLTypePlaintext,
		"scram-sha-256": sarama.SASLTypeSCRAMSHA256, "scram-sha-512": sarama.SASLTypeSCRAMSHA512}
)

// Validate reports everything that is wrong with a filled configuration, each with its key.
func (c *Config) Validate() error {
	var problems []error
	wrong := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("sink.kafka.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	for i, b := range c.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			wrong(fmt.Sprintf("brokers[%d]", i), "%q must be host:port", b)
		}
	}
	oneOf(wrong, "acks", c.Acks, acks)
	oneOf(wrong, "compression", c.Compression, compressions)
	oneOf(wrong, "partitioner", c.Partitioner, partitioners)
	oneOf(wrong, "sasl.mechanism", c.SASL.Mechanism, mechanisms)
	if _, err := c.version(); err != nil {
		wrong("version", "%q must be auto or a version such as 2.8.0, from 0.11.0 on", c.Version)
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > maxMessageBytes {
		wrong("max_message_bytes", "must be from 1024 to %d bytes, not %d", maxMessageBytes, c.MaxMessageBytes)
	}
	if c.Timeout < 100*time.Millisecond {
		wrong("timeout", "must be at least 100ms, not %v", c.Timeout)
	}
	c.validateOrder(wrong)
	c.TLS.validate(wrong)
	c.SASL.validate(wrong)
	return errors.Join(problems...)
}

// validateOrder refuses what can lose or reorder. Case 21.
func (c *Config) validateOrder(wrong func(key, format string, args ...any)) {
	const ordered = "while ordering.mode is key (ordering.mode: none allows it)"
	if *c.Idempotent && c.Acks != "all" {
		wrong("acks", "must be all while sink.kafka.idempotent is true")
	}
	if !c.Ordered {
		return
	}
	if c.Acks != "all" && !*c.Idempotent {
		wrong("acks", "must be all "+ordered+": the next leader may not have what this one acknowledged")
	}
	if !*c.Idempotent {
		wrong("idempotent", "must be true "+ordered+": a retry of the producer can double and reorder records")
	}
	if c.Partitioner == "round_robin" || c.Partitioner == "random" {
		wrong("partitioner", "must depend on the key "+ordered+": Kafka keeps order within a partition only")
	}
}

func (t *TLS) validate(wrong func(key, format string, args ...any)) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		wrong("tls", "cert_file and key_file need each other")
	}
	if !t.Enabled && *t != (TLS{}) {
		wrong("tls.enabled", "must be true for the other settings of tls to have an effect")
	}
}

func (s *SASL) validate(wrong func(key, format string, args ...any)) {
	if s.Mechanism == "none" {
		if s.Username != "" || s.Password != "" || s.PasswordFile != "" {
			wrong("sasl.mechanism", "must be plain, scram-sha-256 or scram-sha-512 for username and password to have an effect")
		}
		return
	}
	if s.Username == "" {
		wrong("sasl.username", "is required for the mechanism %s", s.Mechanism)
	}
	switch {
	case s.Password == "" && s.PasswordFile == "":
		wrong("sasl.password", "is required for the mechanism %s (or password_file)", s.Mechanism)
	case s.Password != "" && s.PasswordFile != "":
		wrong("sasl.password", "and password_file are both set: keep one of them")
	}
}

func oneOf[V any](wrong func(key, format string, args ...any), key, value string, allowed map[string]V) {
	if _, ok := allowed[value]; ok {
		return
	}
	var words []string
	for w := range allowed {
		words = append(words, w)
	}
	slices.Sort(words)
	wrong(key, "%q must be one of %s", value, strings.Join(words, ", "))
}

// version is the newest protocol to speak. Records with headers and idempotent producers came with 0.11.
func (c *Config) version() (sarama.KafkaVersion, error) {
	if c.Version == "auto" {
		return sarama.DefaultVersion, nil
	}
	v, err := sarama.ParseKafkaVersion(c.Version)
	if err == nil && !v.IsAtLeast(sarama.V0_11_0_0) {
		err = errors.New("too old")
	}
	return v, err
}
