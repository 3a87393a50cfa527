package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// TestTheKafkaSinkTakesWhatTheConfigurationTakes holds two lists of words together: those of the configuration, which can
// name file and line, and those of the sink, which stands alone.
func TestTheKafkaSinkTakesWhatTheConfigurationTakes(t *testing.T) {
	t.Parallel()
	for _, k := range config.Keys() {
		for _, word := range strings.Fields(k.OneOf) {
			if !strings.HasPrefix(k.Path, "sink.kafka.") {
				continue
			}
			env := []string{
				"CDC_RELAY_POSTGRES_DSN=host=a", "CDC_RELAY_ORDERING_MODE=none", "CDC_RELAY_SINK_KAFKA_IDEMPOTENT=false", k.Env + "=" + word,
			}
			if strings.HasSuffix(k.Path, "mechanism") && word != "none" {
				env = append(env, "CDC_RELAY_SINK_KAFKA_SASL_USERNAME=u", "CDC_RELAY_SINK_KAFKA_SASL_PASSWORD=p")
			}
			cfg, err := config.Load("", env)
			if err != nil {
				t.Errorf("%s: %s: %v", k.Path, word, err)
				continue
			}
			s, err := openSink(cfg, io.Discard, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Errorf("%s: %s: %v", k.Path, word, err)
				continue
			}
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("%s: %s: close: %v", k.Path, word, err)
			}
		}
	}
}
