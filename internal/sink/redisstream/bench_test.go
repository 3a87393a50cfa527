package redisstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// BenchmarkPublish measures the sink beside go-redis alone, which pipelines the same entries to the same server without
// any promise about order. The two take turns, batch by batch, so that whatever else the machine does meets both;
// x_of_go_redis is the ratio of their throughputs.
func BenchmarkPublish(b *testing.B) {
	server := redistest.Shared(b)
	for _, lanes := range []int{1, 8} {
		for _, batch := range []int{10, 100, 512} {
			b.Run(fmt.Sprintf("lanes=%d/batch=%d", lanes, batch), func(b *testing.B) { compare(b, server, lanes, batch) })
		}
	}
}

func compare(b *testing.B, server *redistest.Server, lanes, batch int) {
	stream := redistest.StreamName(b)
	s := opened(b, redisstream.Config{URL: server.URL(), MaxLen: 10_000})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, MaxRetries: -1, PoolSize: lanes, DisableIdentity: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	defer client.Close()
	batches := make([][]*event.Event, lanes)
	for lane := range batches {
		for i := range batch {
			e := sinktest.Event(stream, fmt.Sprint("customer-", lane, "-", i%31), strings.Repeat(`{"order":1},`, 400/12))
			e.Headers = []event.Header{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
			batches[lane] = append(batches[lane], e)
		}
	}
	everyLane := func(do func(events []*event.Event)) time.Duration {
		began := time.Now()
		var running sync.WaitGroup
		for _, events := range batches {
			running.Go(func() { do(events) })
		}
		running.Wait()
		return time.Since(began)
	}
	var ours, theirs time.Duration
	rounds := 0
	for b.Loop() {
		ours += everyLane(func(events []*event.Event) {
			for _, err := range s.Publish(context.Background(), events) {
				if err != nil {
					b.Error(err)
				}
			}
		})
		theirs += everyLane(func(events []*event.Event) {
			if err := pipelined(client, events); err != nil {
				b.Error(err)
			}
		})
		rounds++
	}
	n := float64(rounds * lanes * batch)
	b.ReportMetric(n/ours.Seconds(), "events/s")
	b.ReportMetric(n/theirs.Seconds(), "go_redis/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "x_of_go_redis")
}

// pipelined is what a program would write with go-redis.
func pipelined(client *redis.Client, events []*event.Event) error {
	ctx := context.Background()
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, e := range events {
			headers := fmt.Sprintf(`{"traceparent":%q,"created_at":%q}`, e.Headers[0].Value, e.CreatedAt.Format("2006-01-02T15:04:05.000000Z"))
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: e.Topic, MaxLen: 10_000, Approx: true, Values: []any{
				"id", event.FormatUUID(e.MessageID), "key", e.Key, "type", e.Type, "payload", e.Payload, "headers", headers,
			}})
		}
		return nil
	})
	return err
}
