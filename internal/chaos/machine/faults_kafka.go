package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func kafkaFaults() []fault {
	return []fault{
		{kind: "broker stopped and started", inject: restartBroker((*Bed).stopBroker)},
		{kind: "broker killed and started", inject: restartBroker((*Bed).killBroker)},
		{kind: "all brokers killed and started", inject: killBrokers, fit: clustered, long: true},
		{kind: "brokers restarted in turn", inject: rollBrokers, fit: clustered, alone: true, long: true},
		{kind: "partition leaders moved", inject: moveLeaders, fit: clustered},
		{kind: "broker stopped for a moment", inject: freezeBroker},
		{kind: "disk of the broker slow", inject: slowDisk},
		{kind: "topic missing for a while", inject: lateTopic},
		{kind: "topic deleted and made again", inject: recreateTopic},
	}
}

func (b *Bed) stopBroker(node int) error { return b.kafka.Stop(node) }
func (b *Bed) killBroker(node int) error { return b.kafka.Kill(node) }

func restartBroker(stop func(*Bed, int) error) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		away := between(rng, 0, 4*time.Second)
		return w.bed.restartBroker(ctx, rng.IntN(w.bed.kafka.Nodes()), func(n int) error { return stop(w.bed, n) }, func() { pause(ctx, away) })
	}
}

func killBrokers(ctx context.Context, w *world, rng *rand.Rand) error {
	w.bed.broker.Lock()
	defer w.bed.broker.Unlock()
	for n := range w.bed.kafka.Nodes() {
		if err := w.bed.kafka.Kill(n); err != nil {
			return err
		}
	}
	pause(ctx, between(rng, 0, 3*time.Second))
	return w.bed.startAll(context.WithoutCancel(ctx))
}

func rollBrokers(ctx context.Context, w *world, rng *rand.Rand) error {
	for n := range w.bed.kafka.Nodes() {
		away := between(rng, 0, time.Second)
		if err := w.bed.restartBroker(ctx, n, w.bed.kafka.Stop, func() { pause(ctx, away) }); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// freezeBroker stops a broker's process for a moment: its connections stay, and nothing is answered.
func freezeBroker(ctx context.Context, w *world, rng *rand.Rand) error {
	pid := w.bed.kafka.Pid(rng.IntN(w.bed.kafka.Nodes()))
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	pause(ctx, between(rng, 500*time.Millisecond, 6*time.Second))
	return nil
}

// slowDisk has a broker come forward in jerks only, as one does whose disk is slow.
func slowDisk(ctx context.Context, w *world, rng *rand.Rand) error {
	pid := w.bed.kafka.Pid(rng.IntN(w.bed.kafka.Nodes()))
	defer syscall.Kill(pid, syscall.SIGCONT)
	for until := time.Now().Add(between(rng, 3*time.Second, 6*time.Second)); time.Now().Before(until); {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, between(rng, 50*time.Millisecond, 600*time.Millisecond))
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil || !pause(ctx, between(rng, 10*time.Millisecond, 100*time.Millisecond)) {
			return err
		}
	}
	return nil
}

// moveLeaders reorders the replicas of each partition of the steady topics and has the first one lead.
func moveLeaders(_ context.Context, w *world, rng *rand.Rand) error {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	admin, err := sarama.NewClusterAdmin(w.bed.kafka.Brokers(), config)
	if err != nil {
		return err
	}
	defer admin.Close()
	elect := map[string][]int32{}
	described, err := admin.DescribeTopics(w.topics.steady)
	if err != nil {
		return err
	}
	for _, topic := range described {
		assignment := make([][]int32, len(topic.Partitions))
		for _, p := range topic.Partitions {
			replicas := append([]int32(nil), p.Replicas...)
			rng.Shuffle(len(replicas), func(a, b int) { replicas[a], replicas[b] = replicas[b], replicas[a] })
			assignment[p.ID] = replicas
			elect[topic.Name] = append(elect[topic.Name], p.ID)
		}
		if err := admin.AlterPartitionReassignments(topic.Name, assignment); err != nil {
			return fmt.Errorf("move the replicas of %s: %w", topic.Name, err)
		}
	}
	_, err = admin.ElectLeaders(sarama.PreferredElection, elect)
	return err
}

// lateTopic lets events come for a topic that is made only a while later. It stays, with everything in it.
func lateTopic(ctx context.Context, w *world, rng *rand.Rand) error {
	t := &w.topics
	t.mu.Lock()
	name := fmt.Sprintf("%s-late-%d", w.database, len(t.made))
	t.made = append(t.made, name)
	t.mu.Unlock()
	t.late.Store(&name)
	pause(ctx, between(rng, 500*time.Millisecond, 4*time.Second))
	err := w.makeTopic(context.WithoutCancel(ctx), name)
	pause(ctx, between(rng, 0, 2*time.Second))
	t.late.Store(nil)
	return err
}

// recreateTopic loses what was in the volatile topic.
func recreateTopic(ctx context.Context, w *world, rng *rand.Rand) error {
	t, away := &w.topics, between(rng, 0, 4*time.Second)
	if err := attempt(func(tb testbed.TB) { w.bed.kafka.DeleteTopic(tb, t.volatile) }); err != nil {
		return err
	}
	pause(ctx, away)
	t.mu.Lock()
	t.recreated = time.Now() // no node has it any more
	t.mu.Unlock()
	return w.makeTopic(context.WithoutCancel(ctx), t.volatile)
}
