package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// proxied is a broker of the test's own behind proxies.
func proxied(t *testing.T) (*kafkatest.Cluster, []*chaos.Proxy) {
	t.Helper()
	var proxies []*chaos.Proxy
	c := kafkatest.NewCluster(t, kafkatest.Options{Via: func(target string) (string, error) {
		p, err := chaos.NewProxy(target)
		if err != nil {
			return "", err
		}
		proxies = append(proxies, p)
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Errorf("close the proxy: %v", err)
			}
		})
		return p.Addr(), nil
	}})
	return c, proxies
}

func TestG3_ConnectionsThatAreCutUnderLoadReorderAndLoseNothing(t *testing.T) {
	t.Parallel()
	c, proxies := proxied(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 3, nil)
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.Proxied), Timeout: time.Second}, kafka.Options{Inversions: noInversions(t)})
	l := run(t, s, topic, 8, 50)
	l.progress(t, 1000)
	for range 8 {
		proxies[0].CloseAll()
		l.progress(t, 200)
	}
	for range 2 { // long enough to be an outage
		proxies[0].Cut()
		away := l.outages.Load()
		testbed.Eventually(t, time.Minute, "every lane to see the outage", func() bool { return l.outages.Load() >= away+8 })
		if err := proxies[0].Restore(); err != nil {
			t.Fatal(err)
		}
		l.progress(t, 500)
	}
	l.end(t, c)
}

func TestConnectionsThatWereCutWhileIdleGoUnnoticed(t *testing.T) {
	t.Parallel()
	c, proxies := proxied(t)
	topic := c.UniqueTopic(t)
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.Proxied)}, kafka.Options{})
	for range 5 {
		published(t, s, []*event.Event{sinktest.Event(topic, "a", "1"), sinktest.Event(topic, "b", "1")})
		proxies[0].CloseAll() // as a broker does after connections.max.idle.ms
	}
	if n := c.Count(t, topic); n != 10 {
		t.Errorf("%d records", n)
	}
}

func TestABrokerThatFallsSilentIsUnavailableWithinTheBoundAndOverAfterAProbe(t *testing.T) {
	t.Parallel()
	c, proxies := proxied(t)
	topic := c.UniqueTopic(t)
	const timeout = time.Second
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.Proxied), Timeout: timeout}, kafka.Options{})
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "1")})
	proxies[0].Stall(chaos.Both)
	ctx, cancel := context.WithTimeout(t.Context(), 20*timeout) // Publish has a bound of its own
	defer cancel()
	if err := s.Publish(ctx, []*event.Event{sinktest.Event(topic, "k", "2")})[0]; event.ClassOf(err) != event.Unavailable {
		t.Errorf("Publish = %v (%v)", err, event.ClassOf(err))
	}
	if err := s.Probe(ctx); event.ClassOf(err) != event.Unavailable {
		t.Errorf("Probe = %v", err)
	}
	if ctx.Err() != nil {
		t.Error("Publish and Probe waited for the end of their context")
	}
	proxies[0].Resume()
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "3")})
}

func TestCloseIsBoundedWhileABrokerIsSilent(t *testing.T) {
	t.Parallel()
	c, proxies := proxied(t)
	topic := c.UniqueTopic(t)
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.Proxied), Timeout: 20 * time.Second}, kafka.Options{})
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "1")})
	proxies[0].Stall(chaos.Both)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if err := s.Publish(context.Background(), []*event.Event{sinktest.Event(topic, "k", "2")})[0]; event.ClassOf(err) != event.Unavailable {
				t.Errorf("Publish = %v (%v)", err, event.ClassOf(err))
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	callers.Wait()
}

func TestTooFewReplicasAreUnavailableForTheirTopicOnly(t *testing.T) {
	t.Parallel()
	c := kafkatest.NewCluster(t, kafkatest.Options{Nodes: 3})
	good, starved := kafkatest.TopicName(t), kafkatest.TopicName(t)
	c.CreateTopic(t, good, 1, nil)
	c.CreateTopic(t, starved, 1, map[string]string{"min.insync.replicas": "3"})
	s := opened(t, c, kafka.Config{Timeout: 2 * time.Second}, kafka.Options{Inversions: noInversions(t)})
	both := func() []*event.Event {
		return []*event.Event{sinktest.Event(good, "a", "1"), sinktest.Event(starved, "b", "1"), sinktest.Event(starved, "b", "2"), sinktest.Event(good, "c", "1")}
	}
	published(t, s, both())
	if err := c.Kill(2); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, time.Minute, "the good topic to be written and the starved one not", func() error {
		results := s.Publish(t.Context(), both())
		switch {
		case results[0] != nil || results[3] != nil:
			testbed.Eventually(t, time.Minute, "a Probe that succeeds", func() error { return s.Probe(t.Context()) })
			return fmt.Errorf("the good topic: %w", errors.Join(results[0], results[3]))
		case event.ReasonOf(results[1]) != "not_enough_replicas" || event.ReasonOf(results[2]) != "not_enough_replicas":
			return fmt.Errorf("the starved topic: %w", errors.Join(results[1], results[2]))
		}
		return nil
	})
	if err := c.Start(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, time.Minute, "both topics", func() error { return errors.Join(s.Publish(t.Context(), both())...) })
}
