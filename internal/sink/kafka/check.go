package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Check looks at the brokers and at the topics known in advance. It makes no topic.
func (s *Sink) Check(ctx context.Context, topics []string) []preflight.Finding {
	ctx, cancel := s.bounded(ctx, 3*s.config.Timeout, errConnectTimeout)
	defer cancel()
	subject := "kafka " + strings.Join(s.config.Brokers, ",")
	var findings []preflight.Finding
	err := s.visitReady(ctx, func(client sarama.Client) error {
		findings = append(findings, preflight.Finding{Severity: preflight.OK, Subject: subject,
			Detail: fmt.Sprintf("%s answered and let the relay produce.", count(len(client.Brokers()), "broker"))})
		for _, topic := range slices.Compact(slices.Sorted(slices.Values(topics))) {
			findings = append(findings, s.checkTopic(client, topic)...)
		}
		return nil
	})
	if err != nil {
		remedy := s.config.hint(err)
		if remedy == "" {
			remedy = "look at sink.kafka and at the brokers' logs"
		}
		return []preflight.Finding{{Severity: preflight.Failure, Subject: subject, Detail: fmt.Sprintf("The brokers can't be used: %v.", err), Remedy: remedy}}
	}
	return findings
}

// loadingPause is how long a broker is left alone that is just starting.
const loadingPause = 200 * time.Millisecond

// visitReady is visit, but waits for a broker that is still loading its state: that says nothing about the settings.
func (s *Sink) visitReady(ctx context.Context, look func(sarama.Client) error) error {
	for {
		err := s.visit(ctx, look)
		if !errors.Is(err, sarama.ErrOffsetsLoadInProgress) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(loadingPause):
		}
	}
}

func (s *Sink) checkTopic(client sarama.Client, topic string) []preflight.Finding {
	finding := func(severity preflight.Severity, detail, remedy string) preflight.Finding {
		return preflight.Finding{Severity: severity, Subject: "topic " + topic, Detail: detail, Remedy: remedy}
	}
	if !validTopic(topic) {
		return []preflight.Finding{finding(preflight.Failure, "Kafka has no such topic: names have 1 to 249 of the characters a-z A-Z 0-9 . _ -.", "mend outboxes[].topic")}
	}
	partitions, err := client.Partitions(topic)
	switch {
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return []preflight.Finding{finding(preflight.Warning,
			"The topic doesn't exist. If the brokers don't create it by themselves (auto.create.topics.enable), its events fail until it does.",
			fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 12", s.config.Brokers[0], topic))}
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return []preflight.Finding{finding(preflight.Failure, "The relay's user may not see the topic: its events are DEAD at once.",
			fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:… --operation Write --operation Describe --topic %s", s.config.Brokers[0], topic))}
	case err != nil && classify(err).scope != ofPartition:
		return []preflight.Finding{finding(preflight.Failure, fmt.Sprintf("The topic can't be looked up: %v.", err), "look at the brokers' logs")}
	}
	findings := s.checkLeaders(client, topic, partitions, finding)
	return append(findings, s.checkConfig(client, topic, partitions, finding)...)
}

type maker func(severity preflight.Severity, detail, remedy string) preflight.Finding

func (s *Sink) checkLeaders(client sarama.Client, topic string, partitions []int32, finding maker) []preflight.Finding {
	var leaderless []string
	for _, p := range partitions {
		if _, err := client.Leader(topic, p); err != nil {
			leaderless = append(leaderless, strconv.Itoa(int(p)))
		}
	}
	if len(partitions) == 0 || len(leaderless) > 0 {
		return []preflight.Finding{finding(preflight.Failure,
			fmt.Sprintf("No broker leads its partitions %s: their events wait.", strings.Join(leaderless, ", ")), "start the brokers that hold them")}
	}
	return []preflight.Finding{finding(preflight.OK, fmt.Sprintf("It has %s, each with a leader.", count(len(partitions), "partition")), "")}
}

// checkConfig compares the topic's limits with ours. Reading them takes a right of its own (DescribeConfigs), which the
// relay doesn't need.
func (s *Sink) checkConfig(client sarama.Client, topic string, partitions []int32, finding maker) []preflight.Finding {
	configs, err := topicConfigs(client, topic, "max.message.bytes", "min.insync.replicas")
	if err != nil {
		return []preflight.Finding{finding(preflight.Note, fmt.Sprintf("Its configuration couldn't be read: %v.", err), "")}
	}
	var findings []preflight.Finding
	if limit := configs["max.message.bytes"]; limit > 0 && limit < min(s.config.MaxMessageBytes, batchBytes) {
		findings = append(findings, finding(preflight.Warning,
			fmt.Sprintf("max.message.bytes is %d: larger messages are DEAD, and batches of small ones are refused as a whole and sent again one by one.", limit),
			fmt.Sprintf("kafka-configs.sh --alter --topic %s --add-config max.message.bytes=1048588, or sink.kafka.max_message_bytes: %d", topic, limit)))
	}
	if len(partitions) == 0 {
		return findings
	}
	replicas, err := client.Replicas(topic, partitions[0])
	inSync := configs["min.insync.replicas"]
	switch {
	case err != nil:
	case inSync > len(replicas):
		findings = append(findings, finding(preflight.Warning,
			fmt.Sprintf("min.insync.replicas is %d, but it has %s: with acks: all, older brokers refuse everything.", inSync, count(len(replicas), "replica")),
			fmt.Sprintf("kafka-configs.sh --alter --topic %s --add-config min.insync.replicas=%d", topic, max(1, len(replicas)-1))))
	case len(replicas) == 1:
		findings = append(findings, finding(preflight.Note, "It has one replica: its broker's disk holds the only copy of what was published.", ""))
	case inSync < 2 && s.config.Acks == "all":
		findings = append(findings, finding(preflight.Warning,
			"min.insync.replicas is 1: while the other replicas are behind, a message that one broker alone has counts as published.",
			fmt.Sprintf("kafka-configs.sh --alter --topic %s --add-config min.insync.replicas=2", topic)))
	}
	return findings
}

// topicConfigs are those of the topic's settings that are numbers.
func topicConfigs(client sarama.Client, topic string, names ...string) (map[string]int, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	//nolint:staticcheck // its successor DescribeConfigs fails here with an error code that the broker did not send
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: names})
	if err != nil {
		return nil, err
	}
	configs := map[string]int{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Value); err == nil {
			configs[e.Name] = n
		}
	}
	return configs, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
