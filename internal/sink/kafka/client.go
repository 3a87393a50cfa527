package kafka

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const (
	// batchBytes bounds a batch of one partition. It is the limit that topics have by default, so that a batch is not
	// refused as a whole even where max_message_bytes is raised for a few topics. Larger messages are sent alone.
	batchBytes = defaultMaxMessageBytes

	// How often sarama tries to send a batch again, which is about 5 s with the pauses of backoff: a leader that moves
	// goes unnoticed, an outage doesn't take long to be one. Not many: sarama allocates by this number per partition.
	sendRetries = 8
	// How often it asks for metadata again: a topic in the making appears within that.
	metadataRetries = 2

	minBackoff, maxBackoff = 50 * time.Millisecond, time.Second
)

// backoff is the pause before the n-th retry, from 0 on.
func backoff(n int) time.Duration {
	return min(maxBackoff, minBackoff<<max(0, min(n, 10)))
}

// clientConfig is sarama's configuration; what belongs to one producer is set there. The configuration must be valid.
func (c *Config) clientConfig() (*sarama.Config, error) {
	s := sarama.NewConfig()
	s.ClientID = c.ClientID
	s.MetricRegistry = quietRegistry{}
	s.Version, _ = c.version()

	s.Net.MaxOpenRequests = 1 // more can reorder, and an idempotent producer demands it
	s.Net.DialTimeout, s.Net.ReadTimeout, s.Net.WriteTimeout = c.Timeout, c.Timeout, c.Timeout
	s.Metadata.Full = false // the topics in use, not all that the cluster has
	s.Metadata.Retry.Max = metadataRetries
	s.Metadata.Timeout = c.Timeout

	s.Producer.RequiredAcks = acks[c.Acks]
	s.Producer.Idempotent = *c.Idempotent
	s.Producer.Compression = compressions[c.Compression]
	s.Producer.Partitioner = partitioners[c.Partitioner]
	s.Producer.Timeout = c.Timeout * 8 / 10 // the leader's answer that replicas are missing comes before ReadTimeout
	s.Producer.MaxMessageBytes = min(c.MaxMessageBytes, batchBytes)
	s.Producer.Retry.Max = sendRetries
	s.Producer.Return.Successes, s.Producer.Return.Errors = true, true
	// All of Producer.Flush stays 0: what comes while a request is under way is the next batch.
	s.Producer.Transaction.Retry.Max = 3 // of asking for a producer id

	if err := c.TLS.apply(s); err != nil {
		return nil, err
	}
	if err := c.SASL.apply(s); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

func (t *TLS) apply(s *sarama.Config) error {
	if !t.Enabled {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // an operator's explicit wish
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return fmt.Errorf("sink.kafka.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("sink.kafka.tls.ca_file: %s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return fmt.Errorf("sink.kafka.tls.cert_file, key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	s.Net.TLS.Enable, s.Net.TLS.Config = true, config
	return nil
}

func (s *SASL) apply(c *sarama.Config) error {
	if s.Mechanism == "none" {
		return nil
	}
	password := s.Password
	if s.PasswordFile != "" {
		text, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return fmt.Errorf("sink.kafka.sasl.password_file: %w", err)
		}
		if password = strings.TrimRight(string(text), " \t\r\n"); password == "" {
			return fmt.Errorf("sink.kafka.sasl.password_file: %s is empty", s.PasswordFile)
		}
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.Mechanism = mechanisms[s.Mechanism]
	c.Net.SASL.User, c.Net.SASL.Password = s.Username, password
	hash := scram.HashGeneratorFcn(sha512.New)
	if s.Mechanism == "scram-sha-256" {
		hash = sha256.New
	}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	return nil
}

// scramClient is one authentication by SCRAM (RFC 5802).
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(username, password, authzID string) error {
	client, err := c.hash.NewClient(username, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }
