package kafkatest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// keySeparator is between key and value on a line for the console producer: a character that no key has.
const keySeparator = "|"

// JavaProduce writes a record per key with the Java client's own producer and its default partitioner, the key being the
// value too. A key can't have a line break or a |.
func (c *Cluster) JavaProduce(t TB, topic string, keys ...string) {
	t.Helper()
	var lines strings.Builder
	for _, k := range keys {
		lines.WriteString(k + keySeparator + k + "\n")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.kit.java, "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", c.kit.classPath,
		"org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", strings.Join(c.Brokers(), ","), "--topic", topic,
		"--reader-property", "parse.key=true", "--reader-property", "key.separator="+keySeparator)
	cmd.Stdin = strings.NewReader(lines.String())
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("produce with the Java client: %v\n%s", err, said)
	}
}

var found = sync.OnceValues(func() (kit, error) { return findKit(context.Background(), true, os.Stderr) })

// Java is what a test needs to run a Java program of its own: the path of java, and a class path with all of Kafka.
func Java(t TB) (java, classPath string) {
	t.Helper()
	testbed.Require(t, part)
	k, err := found()
	if err != nil {
		testbed.Unavailable(t, part, err)
	}
	return k.java, k.classPath
}

// ClassPath is Kafka's class path.
func ClassPath(t TB) string {
	t.Helper()
	_, path := Java(t)
	return path
}
