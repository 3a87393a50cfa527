package kafkatest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// Record is what a consumer gets.
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte // nil: none
	Value     []byte // nil: a tombstone
	Headers   []Header
	Timestamp time.Time
}

// Header is one of a record's headers, in their order.
type Header struct {
	Key   string
	Value []byte
}

// Header is the value of the first header of that name.
func (r Record) Header(name string) (value string, ok bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

// ReadN waits until the topic has at least n records, and returns all it has then: so a duplicate shows. They are in the
// order of partition and offset.
func (c *Cluster) ReadN(t TB, topic string, n int, timeout time.Duration) []Record {
	t.Helper()
	var records []Record
	testbed.Eventually(t, timeout, fmt.Sprintf("%d records in the topic %s", n, topic), func() error {
		have, err := c.count(topic)
		if err != nil {
			return err
		}
		if have < int64(n) {
			return fmt.Errorf("it has %d", have)
		}
		records, err = c.read(topic)
		return err
	})
	return records
}

// ReadAll returns all records that the topic has now, in the order of partition and offset.
func (c *Cluster) ReadAll(t TB, topic string) []Record {
	t.Helper()
	return c.ReadN(t, topic, 0, changeTimeout)
}

// Count is the number of records that the topic has now.
func (c *Cluster) Count(t TB, topic string) int64 {
	t.Helper()
	n, err := c.count(topic)
	if err != nil {
		t.Fatalf("count the records of the topic %s: %v", topic, err)
	}
	return n
}

// Consume follows a topic from its start until the test's end. The records of one partition come in order.
func (c *Cluster) Consume(t TB, topic string) <-chan Record {
	t.Helper()
	records, stop := make(chan Record, 1000), make(chan struct{})
	client, err := sarama.NewClient(c.Brokers(), clientConfig())
	if err != nil {
		t.Fatalf("consume the topic %s: %v", topic, err)
	}
	spans, err := spansOf(client, topic)
	if err != nil {
		_ = client.Close()
		t.Fatalf("consume the topic %s: %v", topic, err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		_ = client.Close()
		t.Fatalf("consume the topic %s: %v", topic, err)
	}
	var running sync.WaitGroup
	for _, s := range spans {
		running.Go(func() {
			err := s.consume(consumer, stop, func(r Record) bool {
				select {
				case records <- r:
					return true
				case <-stop:
					return false
				}
			})
			if err != nil {
				t.Errorf("consume the topic %s: %v", topic, err)
			}
		})
	}
	t.Cleanup(func() {
		close(stop)
		running.Wait()
		_ = consumer.Close()
		_ = client.Close()
	})
	return records
}

// span is a partition with the offsets it has: first, and one after the last.
type span struct {
	topic       string
	partition   int32
	first, next int64
}

func spansOf(client sarama.Client, topic string) ([]span, error) {
	partitions, err := client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	var spans []span
	for _, p := range partitions {
		first, err := client.GetOffset(topic, p, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		next, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		spans = append(spans, span{topic, p, first, next})
	}
	return spans, nil
}

func (c *Cluster) count(topic string) (int64, error) {
	client, err := sarama.NewClient(c.Brokers(), clientConfig())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	spans, err := spansOf(client, topic)
	var n int64
	for _, s := range spans {
		n += s.next - s.first
	}
	return n, err
}

func (c *Cluster) read(topic string) ([]Record, error) {
	var records []Record
	err := c.Scan(topic, func(r Record) { records = append(records, r) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// Scan gives all records that the topic has now to each, partition by partition in the order of their offsets. Unlike
// ReadAll it keeps none, and needs no test.
func (c *Cluster) Scan(topic string, each func(Record)) error {
	client, err := sarama.NewClient(c.Brokers(), clientConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	spans, err := spansOf(client, topic)
	if err != nil {
		return err
	}
	for _, s := range spans {
		if s.next == s.first {
			continue
		}
		err := s.consume(consumer, nil, func(r Record) bool {
			each(r)
			return r.Offset < s.next-1
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// consume gives the partition's records to more, from the first, until it returns false or stop is closed. With a nil
// stop it gives up when nothing comes for a while.
func (s span) consume(consumer sarama.Consumer, stop <-chan struct{}, more func(Record) bool) (err error) {
	p, err := consumer.ConsumePartition(s.topic, s.partition, s.first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	timer := time.NewTimer(changeTimeout)
	defer timer.Stop()
	silence := timer.C
	if stop != nil {
		silence = nil
	}
	for {
		select {
		case m := <-p.Messages():
			if m == nil || !more(record(m)) {
				return nil
			}
			timer.Reset(changeTimeout)
		case <-stop:
			return nil
		case <-silence:
			return fmt.Errorf("partition %d of %s wasn't read to its end: nothing came for %v", s.partition, s.topic, changeTimeout)
		}
	}
}

func record(m *sarama.ConsumerMessage) Record {
	r := Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}
