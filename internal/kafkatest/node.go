package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// node is one broker: its ports, of which the plain listener's place has its directory, and its process.
type node struct {
	id     int // Kafka's node.id, from 1
	places map[Listener]*testbed.Place
	via    string // address of the listener Proxied

	mu     sync.Mutex // guards the rest
	server *testbed.Process
}

func newNode(id int, listeners []Listener) (*node, error) {
	n := &node{id: id, places: map[Listener]*testbed.Place{}}
	for _, l := range listeners {
		place, err := testbed.Reserve()
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.places[l] = place
	}
	return n, nil
}

func (n *node) file(name string) string { return filepath.Join(n.places[Plain].Dir, name) }

func (n *node) dataDir() string { return n.file("data") }

func (n *node) start(k kit, jvm []string) error {
	log, err := os.OpenFile(n.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append(slices.Clone(jvm), "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", k.classPath, "kafka.Kafka", n.file("server.properties"))
	cmd := exec.Command(k.java, args...)
	cmd.Dir = n.places[Plain].Dir
	cmd.Stdout, cmd.Stderr = log, log
	server, err := testbed.StartProcess(cmd, nil, syscall.SIGKILL)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server = server
	return nil
}

// ready waits until the node itself says that it and, in all, at least so many brokers are in the cluster.
func (n *node) ready(ctx context.Context, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		ids, err := n.sees()
		if err == nil && slices.Contains(ids, int32(n.id)) && len(ids) >= brokers {
			return nil
		}
		if server := n.process(); server.Exited(5 * testbed.Tick) {
			return fmt.Errorf("kafka node %d ended while starting: %w\n%s", n.id, server.Err(), n.logTail())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("kafka node %d isn't ready within %v; it sees the brokers %v: %w\n%s", n.id, startTimeout, ids, err, n.logTail())
		}
	}
}

// sees asks the node, and no other, for the brokers of its cluster.
func (n *node) sees() ([]int32, error) {
	metadata, err := n.metadata(nil)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, b := range metadata.Brokers {
		ids = append(ids, b.ID())
	}
	return ids, nil
}

func (n *node) metadata(topics []string) (*sarama.MetadataResponse, error) {
	config := clientConfig()
	b := sarama.NewBroker(n.places[Plain].Addr())
	if err := b.Open(config); err != nil {
		return nil, err
	}
	defer b.Close()
	request := sarama.NewMetadataRequest(sarama.V2_8_0_0, topics)
	request.AllowAutoTopicCreation = false
	return b.GetMetadata(request)
}

func (n *node) process() *testbed.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server
}

func (n *node) running() bool {
	p := n.process()
	return p != nil && !p.Exited(0)
}

func (n *node) pid() int {
	if p := n.process(); p != nil {
		return p.Pid()
	}
	return 0
}

func (n *node) stop(sig syscall.Signal, timeout time.Duration) error {
	p := n.process()
	if p == nil {
		return nil
	}
	if err := p.Stop(sig, timeout); err != nil {
		return fmt.Errorf("stop kafka node %d: %w\n%s", n.id, err, n.logTail())
	}
	return nil
}

func (n *node) close() error {
	err := n.stop(syscall.SIGKILL, stopTimeout)
	for _, place := range n.places {
		err = errors.Join(err, place.Release())
	}
	return err
}

// logTail is the end of the node's log, for errors.
func (n *node) logTail() string {
	log, err := os.ReadFile(n.file("log"))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}
