package kafka_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

const partitions = 13

// javaPartitions are the partitions of the keys, as the Java client computes them and as its producer chose them.
func javaPartitions(t *testing.T, c *kafkatest.Cluster, topic string, keys []string) []int32 {
	t.Helper()
	java, classPath := kafkatest.Java(t)
	var in, diagnostics bytes.Buffer
	for _, k := range keys {
		in.WriteString(base64.StdEncoding.EncodeToString([]byte(k)) + "\n")
	}
	cmd := exec.Command(java, "-XX:TieredStopAtLevel=1", "-cp", classPath, "testdata/Partitions.java", strings.Join(c.Brokers(), ","), topic, strconv.Itoa(partitions))
	cmd.Stdin, cmd.Stderr = &in, &diagnostics
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run the Java program: %v\n%s", err, diagnostics.String())
	}
	var found []int32
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var computed, hash, sent int32
		if _, err := fmt.Sscan(line, &computed, &hash, &sent); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if computed != sent {
			t.Fatalf("the Java client computes %d and sends to %d", computed, sent)
		}
		found = append(found, computed)
	}
	if len(found) != len(keys) {
		t.Fatalf("%d partitions for %d keys", len(found), len(keys))
	}
	return found
}

func TestAKeyGoesToThePartitionThatTheJavaClientChooses(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	keys := []string{"", "a", "ab", "abc", "abcd", "abcde", "ключ", "鍵", "🔑", "naïve", "a\nb", "\x00", strings.Repeat("x", 10_000)}
	for i := range 300 {
		keys = append(keys, fmt.Sprintf("customer-%d", i), strconv.FormatUint(rand.Uint64(), 36)[:1+i%10])
	}
	topic, javas := kafkatest.TopicName(t), kafkatest.TopicName(t)
	c.CreateTopic(t, topic, partitions, nil)
	c.CreateTopic(t, javas, partitions, nil)
	s := opened(t, c, kafka.Config{}, kafka.Options{})
	var events []*event.Event
	for i, k := range keys {
		e := sinktest.Event(topic, k, strconv.Itoa(i))
		e.HasKey = true
		events = append(events, e)
	}
	published(t, s, events)
	want := javaPartitions(t, c, javas, keys)
	used := map[int32]bool{}
	for _, r := range c.ReadN(t, topic, len(keys), 30*time.Second) {
		i, err := strconv.Atoi(string(r.Value))
		if err != nil {
			t.Fatal(err)
		}
		if r.Partition != want[i] || string(r.Key) != keys[i] {
			t.Errorf("the key %.40q is in partition %d, the Java client's in %d", keys[i], r.Partition, want[i])
		}
		used[r.Partition] = true
	}
	if len(used) != partitions {
		t.Errorf("%d of %d partitions are used", len(used), partitions)
	}
}

func TestEveryPartitionerThatDependsOnTheKeyKeepsAKeyInOnePartition(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, partitioner := range []string{"murmur2", "crc32", "fnv1a"} {
		topic := kafkatest.TopicName(t)
		c.CreateTopic(t, topic, 5, nil)
		s := opened(t, c, kafka.Config{Partitioner: partitioner}, kafka.Options{})
		var events []*event.Event
		for i := range 200 {
			events = append(events, sinktest.Event(topic, fmt.Sprint("key ", i%20), "p"))
		}
		published(t, s, events)
		of := map[string]int32{}
		for _, r := range c.ReadN(t, topic, len(events), 30*time.Second) {
			if p, ok := of[string(r.Key)]; ok && p != r.Partition {
				t.Errorf("%s: %s is in the partitions %d and %d", partitioner, r.Key, p, r.Partition)
			}
			of[string(r.Key)] = r.Partition
		}
	}
}

// opened is a sink that is closed with the test.
func opened(t testing.TB, c *kafkatest.Cluster, config kafka.Config, o kafka.Options) *kafka.Sink {
	t.Helper()
	if config.Brokers == nil && c != nil {
		config.Brokers = c.Brokers()
	}
	config.Ordered = true
	s, err := kafka.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// published demands that every event is acknowledged.
func published(t testing.TB, s *kafka.Sink, events []*event.Event) {
	t.Helper()
	for i, err := range s.Publish(t.Context(), events) {
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, len(events), err)
		}
	}
}
