package kafkatest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.Retry.Max = 1
	return c
}

// produce sends values to a topic, each with itself as the key, and returns the first error.
func produce(brokers []string, c *sarama.Config, topic string, values ...string) error {
	p, err := sarama.NewSyncProducer(brokers, c)
	if err != nil {
		return err
	}
	for _, v := range values {
		_, _, err = p.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(v), Value: sarama.StringEncoder(v),
			Headers: []sarama.RecordHeader{{Key: []byte("message_id"), Value: []byte("id-" + v)}},
		})
		if err != nil {
			break
		}
	}
	return errors.Join(err, p.Close())
}

func TestRecordsAreReadBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	if err := produce(c.Brokers(), config(), topic, "a", "b"); err != nil {
		t.Fatal(err)
	}
	records := c.ReadN(t, topic, 2, 10*time.Second)
	if len(records) != 2 || string(records[0].Value) != "a" || string(records[1].Key) != "b" || records[1].Offset != 1 {
		t.Errorf("%+v", records)
	}
	if id, ok := records[0].Header("message_id"); !ok || id != "id-a" {
		t.Errorf("message_id = %q, %v", id, ok)
	}
	if _, ok := records[0].Header("other"); ok {
		t.Error("a header that isn't there")
	}
	follow := c.Consume(t, topic)
	if err := produce(c.Brokers(), config(), topic, "c"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b", "c"} {
		select {
		case r := <-follow:
			if string(r.Value) != want {
				t.Errorf("followed %s, want %s", r.Value, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s didn't come", want)
		}
	}
	if n := c.Count(t, topic); n != 3 {
		t.Errorf("Count = %d", n)
	}
}

func TestANullKeyAndATombstoneAreNil(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	p, err := sarama.NewSyncProducer(c.Brokers(), config())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, m := range []*sarama.ProducerMessage{
		{Topic: topic},
		{Topic: topic, Key: sarama.StringEncoder(""), Value: sarama.StringEncoder("")},
	} {
		if _, _, err := p.SendMessage(m); err != nil {
			t.Fatal(err)
		}
	}
	r := c.ReadN(t, topic, 2, 10*time.Second)
	if r[0].Key != nil || r[0].Value != nil {
		t.Errorf("nothing came back as %q, %q", r[0].Key, r[0].Value)
	}
	if r[1].Key == nil || r[1].Value == nil {
		t.Error("empty came back as nil")
	}
}

func TestTopicsDontAppearByThemselves(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	with := config()
	with.Metadata.AllowAutoTopicCreation = true
	if err := produce(c.Brokers(), with, kafkatest.TopicName(t), "a"); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("error = %v", err)
	}
}

func TestATopicsConfigurationCanChange(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "500"})
	large := strings.Repeat("x", 1000)
	if err := produce(c.Brokers(), config(), topic, large); !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		t.Errorf("error = %v", err)
	}
	c.AlterTopicConfig(t, topic, map[string]string{"max.message.bytes": "1000000"})
	testbed.Eventually(t, 10*time.Second, "the larger limit", func() error {
		return produce(c.Brokers(), config(), topic, large)
	})
}

func TestADeletedTopicIsGone(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	c.DeleteTopic(t, topic)
	if err := produce(c.Brokers(), config(), topic, "a"); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("error = %v", err)
	}
}

func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := c.UniqueTopic(t)
	c.AddPartitions(t, topic, 4)
	if err := produce(c.Brokers(), config(), topic, strings.Split("abcdefghijklmnop", "")...); err != nil {
		t.Fatal(err)
	}
	seen := map[int32]bool{}
	for _, r := range c.ReadAll(t, topic) {
		seen[r.Partition] = true
	}
	if len(seen) < 2 {
		t.Errorf("partitions used: %v", seen)
	}
}

func TestTheJavaProducerChoosesPartitionsByItsOwnHash(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 10, nil)
	c.JavaProduce(t, topic, "21", "foobar", "grüße")
	got := map[string]int32{}
	for _, r := range c.ReadN(t, topic, 3, 10*time.Second) {
		got[string(r.Key)] = r.Partition
	}
	// From murmur2 of the key's bytes in Kafka's own UtilsTest, made positive, modulo 10.
	if want21, wantFoobar := toPositive(-973932308)%10, toPositive(-790332482)%10; got["21"] != want21 || got["foobar"] != wantFoobar {
		t.Errorf("partitions %v, want 21 on %d and foobar on %d", got, want21, wantFoobar)
	}
	if _, ok := got["grüße"]; !ok {
		t.Errorf("keys %v: no UTF-8", got)
	}
}

func toPositive(hash int32) int32 { return hash & 0x7fffffff }

func TestTheClassPathRunsKafkasPrograms(t *testing.T) {
	t.Parallel()
	java, classPath := kafkatest.Java(t)
	if classPath != kafkatest.ClassPath(t) {
		t.Error("two class paths")
	}
	out, err := exec.Command(java, "-cp", classPath, "kafka.Kafka", "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), kafkatest.Version) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestANodeComesBackWithItsDataOnItsPort(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{})
	brokers := c.Brokers()
	topic := c.UniqueTopic(t)
	for i, stop := range []func(int) error{c.Kill, c.Stop} {
		if err := produce(brokers, config(), topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if err := stop(0); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", brokers[0]); err == nil {
			conn.Close()
			t.Error("something still listens")
		}
		if err := c.Start(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if records := c.ReadN(t, topic, 2, 20*time.Second); len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
}

func TestThreeNodesOutliveTheDeathOfOne(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{Nodes: 3, Properties: map[string]string{"min.insync.replicas": "2"}})
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 3, nil)
	if err := produce(c.Brokers(), config(), topic, "before"); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 60*time.Second, "other leaders", func() error {
		return produce(c.Brokers(), config(), topic, strings.Split("abcdef", "")...)
	})
	if err := c.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if records := c.ReadN(t, topic, 7, 20*time.Second); len(records) < 7 {
		t.Errorf("%d records", len(records))
	}
}

func TestClientsOfTheProxiedListenerStayBehindTheProxy(t *testing.T) {
	t.Parallel()
	var proxy *chaos.Proxy
	t.Cleanup(func() {
		if proxy != nil {
			proxy.Close()
		}
	})
	c := kafkatest.NewCluster(t, kafkatest.Options{Via: func(target string) (addr string, err error) {
		if proxy, err = chaos.NewProxy(target); err != nil {
			return "", err
		}
		return proxy.Addr(), nil
	}})
	topic := c.UniqueTopic(t)
	if err := produce(c.BrokersOn(kafkatest.Proxied), config(), topic, "a"); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if err := produce(c.BrokersOn(kafkatest.Proxied), config(), topic, "b"); err == nil {
		t.Error("there is a way around the proxy")
	}
	if err := produce(c.Brokers(), config(), topic, "c"); err != nil { // the broker itself is well
		t.Error(err)
	}
	if err := proxy.Restore(); err != nil {
		t.Fatal(err)
	}
	if err := produce(c.BrokersOn(kafkatest.Proxied), config(), topic, "d"); err != nil {
		t.Error(err)
	}
	if n := len(c.ReadAll(t, topic)); n != 3 {
		t.Errorf("%d records", n)
	}
}

func TestABadPropertyFailsTheStartWithTheBrokersWords(t *testing.T) {
	t.Parallel()
	kafkatest.Java(t) // fails or skips here when there is no Kafka
	_, err := kafkatest.StartCluster(t.Context(), kafkatest.Options{Properties: map[string]string{"num.io.threads": "many"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("error = %v", err)
	}
}

const ownerVariable = "KAFKATEST_OWNER"

// TestOwner isn't a test but the process that the next test kills.
func TestOwner(t *testing.T) {
	if os.Getenv(ownerVariable) == "" {
		return
	}
	c, err := kafkatest.StartCluster(context.Background(), kafkatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("addr=" + c.Brokers()[0] + "\n")
	select {}
}

func TestABrokerEndsWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	kafkatest.Java(t)
	owner := exec.Command(os.Args[0], "-test.run=^TestOwner$")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := out.Read(buf)
	addr, ok := strings.CutPrefix(strings.TrimSpace(string(buf[:n])), "addr=")
	if err != nil || !ok {
		t.Fatalf("the owner said %q (%v)", buf[:n], err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	testbed.Eventually(t, 20*time.Second, "the end of the broker", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

func TestAMissingJavaOrMavenIsAnErrorThatSaysHowToGetIt(t *testing.T) {
	java, classPath := kafkatest.Java(t)
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv("JAVA_HOME", empty)
	t.Setenv("MAVEN_HOME", empty)
	_, err := kafkatest.StartCluster(t.Context(), kafkatest.Options{})
	if err == nil || !strings.Contains(err.Error(), "default-jre-headless") {
		t.Errorf("without Java: %v", err)
	}
	t.Setenv("JAVA_HOME", filepath.Dir(filepath.Dir(java)))
	t.Setenv("XDG_CACHE_HOME", empty)
	_, err = kafkatest.StartCluster(t.Context(), kafkatest.Options{})
	if err == nil || !strings.Contains(err.Error(), "maven") || !strings.Contains(err.Error(), kafkatest.LibsVariable) {
		t.Errorf("without Maven: %v", err)
	}
	t.Setenv(kafkatest.LibsVariable, filepath.Dir(classPath))
	kafkatest.NewCluster(t, kafkatest.Options{}).UniqueTopic(t) // needs no Maven
}
