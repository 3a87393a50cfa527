package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
)

// gather takes down what all witnesses say. Nobody writes any more.
func (w *world) gather(ctx context.Context) (*history.History, error) {
	h := &history.History{Windows: w.windows, Rules: w.rules()}
	for _, wr := range append(slices.Clone(w.writers), w.canary, w.large) {
		h.Events = append(h.Events, wr.events...)
	}
	if err := w.readTable(ctx, h); err != nil {
		return nil, err
	}
	for _, topic := range slices.Concat(w.topics.steady, []string{w.topics.volatile}, w.topics.allLate()) {
		err := w.bed.kafka.Scan(topic, func(r kafkatest.Record) { h.Records = append(h.Records, record(topic, r)) })
		if err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return nil, fmt.Errorf("read the topic %s: %w", topic, err)
		}
	}
	return h, w.evidence(h.Windows)
}

func (w *world) rules() history.Rules {
	t := &w.topics
	r := history.Rules{Retention: retention, InFlight: inFlight, Recreated: map[string]time.Time{}, Refusing: map[string]bool{t.volatile: true}}
	for _, late := range t.allLate() {
		r.Refusing[late] = true
	}
	if !t.recreated.IsZero() {
		r.Recreated[t.volatile] = t.recreated
	}
	return r
}

func (w *world) readTable(ctx context.Context, h *history.History) error {
	for _, table := range tables {
		rows, err := w.pool.Query(ctx, readRows(table))
		if err != nil {
			return err
		}
		var r history.Row
		if _, err := pgx.ForEachRow(rows, []any{&r.UID, &r.ID, &r.MessageID, &r.Status}, func() error {
			h.Rows = append(h.Rows, r)
			return nil
		}); err != nil {
			return err
		}
	}
	rows, err := w.pool.Query(ctx, readDiary)
	if err != nil {
		return err
	}
	var c history.Change
	var published *time.Time
	_, err = pgx.ForEachRow(rows, []any{&c.UID, &c.From, &c.To, &c.Attempts, &c.Attempted, &c.Error, &c.At, &published}, func() error {
		c.PublishedAt = time.Time{}
		if published != nil {
			c.PublishedAt = *published
		}
		h.Changes = append(h.Changes, c)
		return nil
	})
	return err
}

// record keeps of a record what the judge needs.
func record(topic string, r kafkatest.Record) history.Record {
	id, _ := r.Header("message_id")
	var payload struct {
		U int64 `json:"u"`
	}
	payload.U = -1
	_ = json.Unmarshal(r.Value, &payload) // what can't be read has no writer
	return history.Record{
		UID: payload.U, Topic: topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp,
		Key: string(r.Key), MessageID: id, Sum: crc32.ChecksumIEEE(r.Value),
	}
}
