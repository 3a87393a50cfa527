package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// unknownFor is how long a topic that wasn't found is taken not to exist, so that its events don't hold up every batch
// they are in.
const unknownFor = time.Second

// topics are what a producer knows of the topics. It asks itself, before sarama would: sarama asks in the topic's own
// queue, for each message anew, and shuts the topic for 10 s after three failures.
type topics struct {
	mu      sync.Mutex
	looks   map[string]*look
	looking sync.WaitGroup
}

// look is one question about one topic. err is set before done is closed.
type look struct {
	done chan struct{}
	err  error
	at   time.Time
}

// ready returns nil when the topic has partitions. Asking makes the topic, where the brokers allow that. A first question
// takes up to the metadata retries; it ends with ctx.
func (t *topics) ready(ctx context.Context, client sarama.Client, name string) error {
	l := t.look(client, name)
	select {
	case <-l.done:
		return l.err
	default:
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *topics) look(client sarama.Client, name string) *look {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.looks[name]
	if l != nil && !l.stale() {
		return l
	}
	if t.looks == nil {
		t.looks = map[string]*look{}
	}
	l = &look{done: make(chan struct{})}
	t.looks[name] = l
	t.looking.Go(func() {
		defer close(l.done)
		_, err := client.Partitions(name)
		if err != nil && classify(err).scope == ofPartition {
			// Some partitions have no leader: the others can be written to. What was learned is there now.
			_, err = client.Partitions(name)
		}
		l.err, l.at = err, time.Now()
	})
	return l
}

// stale says whether the answer was no, a while ago.
func (l *look) stale() bool {
	select {
	case <-l.done:
		return l.err != nil && time.Since(l.at) > unknownFor
	default:
		return false
	}
}

// forget makes the next one ask again, because the broker has refused a topic that was there.
func (t *topics) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.looks[name]; l != nil {
		select {
		case <-l.done:
			if l.err == nil {
				delete(t.looks, name)
			}
		default:
		}
	}
}
