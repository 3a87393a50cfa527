package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// explain adds to an error of connecting what an operator can do about it.
func (c *Config) explain(err error) error {
	if hint := c.hint(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

func (c *Config) hint(err error) string {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return fmt.Sprintf("the broker refuses user %q by %s: look at sink.kafka.sasl.username and password", c.SASL.Username, c.SASL.Mechanism)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Sprintf("the broker doesn't offer %s: set sink.kafka.sasl.mechanism to one of its sasl.enabled.mechanisms", c.SASL.Mechanism)
	case errors.As(err, &certificate):
		return "the broker's certificate is not trusted: set sink.kafka.tls.ca_file to the certificate of its authority, or tls.server_name to the name it was made for"
	case errors.As(err, &header):
		return "the broker doesn't speak TLS on this port: use its TLS listener's port, or set sink.kafka.tls.enabled: false"
	case isAlert(err):
		return "the broker refuses the relay's certificate, or its lack: set sink.kafka.tls.cert_file and key_file"
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return "grant the relay's user IdempotentWrite on the cluster: kafka-acls --add --allow-principal User:… --operation IdempotentWrite --cluster"
	case errors.Is(err, sarama.ErrUnsupportedVersion):
		return "the broker is too old for an idempotent producer (Kafka 0.11), or sink.kafka.version is too new for it"
	case isEOF(err) && c.TLS.Enabled:
		return "the broker broke the connection off: if its port has no TLS, use its TLS listener's port, or set sink.kafka.tls.enabled: false"
	case isEOF(err):
		return "the broker broke the connection off: if its listener is SSL or SASL_SSL, set sink.kafka.tls.enabled: true; if it asks for SASL, set sink.kafka.sasl.mechanism"
	case classify(err).scope == ofCluster:
		return "look at sink.kafka.brokers, and whether their advertised.listeners can be reached from here"
	}
	return ""
}
