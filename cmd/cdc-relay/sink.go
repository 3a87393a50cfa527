package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/discard"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// openSink makes the configured sink. It reaches for no broker yet: that is for Probe, Check and Publish.
func openSink(cfg *config.Config, out io.Writer, log *slog.Logger) (sink.Sink, error) {
	switch cfg.Sink.Kind {
	case "stdout":
		return stdout.New(out), nil
	case "kafka":
		return kafka.New(kafkaConfig(cfg), kafka.Options{Logger: log})
	case "discard":
		return discard.Sink{}, nil
	default:
		return nil, fmt.Errorf("sink.kind %s isn't available in this build", cfg.Sink.Kind)
	}
}

// kafkaConfig is the Kafka sink's form of the settings.
func kafkaConfig(cfg *config.Config) kafka.Config {
	k := cfg.Sink.Kafka
	return kafka.Config{
		Brokers: k.Brokers, Acks: k.Acks, Idempotent: &k.Idempotent, Compression: k.Compression, Partitioner: k.Partitioner,
		ClientID: k.ClientID, Version: k.Version, MaxMessageBytes: int(k.MaxMessageBytes), Timeout: k.Timeout,
		TLS: kafka.TLS{
			Enabled: k.TLS.Enabled, CAFile: k.TLS.CAFile, CertFile: k.TLS.CertFile, KeyFile: k.TLS.KeyFile,
			ServerName: k.TLS.ServerName, InsecureSkipVerify: k.TLS.InsecureSkipVerify,
		},
		SASL:    kafka.SASL{Mechanism: k.SASL.Mechanism, Username: k.SASL.Username, Password: k.SASL.Password},
		Ordered: cfg.Ordering.Mode == "key",
	}
}
