package main

import (
	"io"
	"log/slog"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/discard"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// openSink makes the configured sink. It reaches for no broker yet: that is for Probe, Check and Publish. So all that can
// be wrong here is the configuration, and the error is a *config.Error.
func openSink(cfg *config.Config, out io.Writer, log *slog.Logger) (sink.Sink, error) {
	switch cfg.Sink.Kind {
	case "stdout":
		return stdout.New(out), nil
	case "kafka":
		s, err := kafka.New(kafkaConfig(cfg), kafka.Options{Logger: log})
		if err != nil {
			return nil, &config.Error{Problems: []config.Problem{{Message: err.Error()}}}
		}
		return s, nil
	case "discard":
		return discard.Sink{}, nil
	default:
		return nil, &config.Error{Problems: []config.Problem{{Key: "sink.kind", Message: "can't be " + cfg.Sink.Kind + " in this build"}}}
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
