package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
)

func TestCheckSaysWhatItFindsAndWhatToDo(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	good, small, missing := c.UniqueTopic(t), kafkatest.TopicName(t), kafkatest.TopicName(t)
	c.CreateTopic(t, small, 2, map[string]string{"max.message.bytes": "1000"})
	s := opened(t, c, kafka.Config{}, kafka.Options{})
	findings := s.Check(t.Context(), []string{good, small, missing, "no topic", good})
	for _, want := range []struct {
		subject  string
		severity preflight.Severity
		detail   string
	}{
		{"kafka ", preflight.OK, "1 broker answered"},
		{"topic " + good, preflight.OK, "1 partition, each with a leader"},
		{"topic " + good, preflight.Note, "one replica"},
		{"topic " + small, preflight.OK, "2 partitions"},
		{"topic " + small, preflight.Warning, "max.message.bytes is 1000"},
		{"topic " + missing, preflight.Warning, "doesn't exist"},
		{"topic no topic", preflight.Failure, "names have 1 to 249"},
	} {
		var found int
		for _, f := range findings {
			if strings.HasPrefix(f.Subject, want.subject) && f.Severity == want.severity && strings.Contains(f.Detail, want.detail) {
				found++
				if f.Severity > preflight.Note && f.Remedy == "" {
					t.Errorf("%+v has no remedy", f)
				}
			}
		}
		if found != 1 {
			t.Errorf("%d findings like %+v in %+v", found, want, findings)
		}
	}
	for _, f := range s.Check(t.Context(), []string{missing}) {
		if strings.Contains(f.Detail, "leader") {
			t.Errorf("Check made the topic: %+v", f)
		}
	}
}

func TestCheckFindsThatNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	s := opened(t, nil, kafka.Config{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second}, kafka.Options{})
	findings := s.Check(t.Context(), []string{"t"})
	if len(findings) != 1 || findings[0].Severity != preflight.Failure || !strings.Contains(findings[0].Remedy, "sink.kafka.brokers") {
		t.Errorf("%+v", findings)
	}
}
