package kafka

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Probe asks the brokers for metadata and, when the producer is idempotent, for a producer id, over connections of its
// own. When they answer, the next Publish makes a new producer.
func (s *Sink) Probe(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx, 2*s.config.Timeout, errConnectTimeout)
	defer cancel()
	err := context.Cause(ctx)
	if err == nil {
		err = s.visit(ctx, func(sarama.Client) error { return nil })
	}
	if err != nil {
		v := classify(err)
		v.class = event.Unavailable
		return v.wrap(fmt.Errorf("reach the brokers: %w", s.config.explain(err)))
	}
	s.found()
	return nil
}

// found notes that the brokers answer.
func (s *Sink) found() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil && !s.closed {
		s.log.Info("kafka is available again")
		s.down = nil
	}
}

// visit runs look with a client that has reached the brokers and may produce. It ends with ctx.
func (s *Sink) visit(ctx context.Context, look func(sarama.Client) error) error {
	base := *s.base
	base.Metadata.AllowAutoTopicCreation = false
	f, client, err := s.config.connect(&base)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { f.sever(context.Cause(ctx)) })
	defer func() {
		stop()
		f.sever(errFenced)
		_ = client.Close()
	}()
	err = s.reach(client)
	if err == nil {
		err = look(client)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

func (s *Sink) reach(client sarama.Client) error {
	var topics []string // none: all of them, which can be many
	s.mu.Lock()
	if s.topic != "" {
		topics = append(topics, s.topic)
	}
	s.mu.Unlock()
	if err := client.RefreshMetadata(topics...); err != nil && classify(err).scope == ofCluster {
		return err
	}
	if !*s.config.Idempotent {
		return nil
	}
	id, err := client.InitProducerID()
	if err == nil && id.Err != sarama.ErrNoError {
		err = id.Err
	}
	return err
}
