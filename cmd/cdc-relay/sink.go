package main

import (
	"io"
	"log/slog"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/discard"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// openSink makes the configured sink. It reaches for no broker yet: that is for Probe, Check and Publish. So all that can
// be wrong here is the configuration, and the error is a *config.Error.
func openSink(cfg *config.Config, out io.Writer, log *slog.Logger) (sink.Sink, error) {
	if cfg.Sink.Format != "raw" {
		return nil, notBuilt("sink.format", cfg.Sink.Format)
	}
	switch cfg.Sink.Kind {
	case "stdout":
		return stdout.New(out), nil
	case "kafka":
		s, err := kafka.New(kafkaConfig(cfg), kafka.Options{Logger: log})
		if err != nil {
			return nil, &config.Error{Problems: []config.Problem{{Message: err.Error()}}}
		}
		return s, nil
	case "redis":
		s, err := redisstream.New(redisConfig(cfg), redisstream.Options{Logger: log})
		if err != nil {
			return nil, &config.Error{Problems: []config.Problem{{Message: err.Error()}}}
		}
		return s, nil
	case "discard":
		return discard.Sink{}, nil
	default:
		return nil, notBuilt("sink.kind", cfg.Sink.Kind)
	}
}

// notBuilt refuses a setting that has a name and no code yet: to ignore it would be to promise it.
func notBuilt(key, value string) error {
	return &config.Error{Problems: []config.Problem{{Key: key, Message: "can't be " + value + " in this build"}}}
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

// redisConfig is the Redis sink's form of the settings.
func redisConfig(cfg *config.Config) redisstream.Config {
	r := cfg.Sink.Redis
	return redisstream.Config{
		URL: r.URL, Addrs: r.Addrs, MasterName: r.MasterName, SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword,
		MaxLen: int64(r.MaxLen), MaxAge: r.MaxAge, TrimExact: r.TrimExact, Idempotent: &r.Idempotent,
		WaitReplicas: r.WaitReplicas, WaitTimeout: r.WaitTimeout, MaxMessageBytes: int(r.MaxMessageBytes), Timeout: r.Timeout,
		TLS: redisstream.TLS{
			Enabled: r.TLS.Enabled, CAFile: r.TLS.CAFile, CertFile: r.TLS.CertFile, KeyFile: r.TLS.KeyFile,
			ServerName: r.TLS.ServerName, InsecureSkipVerify: r.TLS.InsecureSkipVerify,
		},
		Connections: cfg.Dispatch.Lanes, Ordered: cfg.Ordering.Mode == "key",
	}
}
