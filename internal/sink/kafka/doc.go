// Package kafka publishes events to Apache Kafka with sarama's AsyncProducer.
//
// A record has the payload's bytes as its value (NULL is a tombstone), the event's key, the headers of the raw format
// (sink.RawHeaders) and created_at as its timestamp, in milliseconds. Kafka's retention counts from that timestamp: an
// event that waited in the outbox for longer than the topic keeps records is removed soon after it arrived.
//
// What sarama doesn't give, and this package adds:
//
//   - Order within a batch. After a batch of a partition has failed for good, sarama sends the next one. Here the first
//     failure fences the producer (type fence) before anything further of that partition is written; what was not
//     sent yet is sent again, behind the failed event or not at all, by a new producer.
//   - One record's own fault. A broker refuses a batch as a whole. Each event of a refused batch is tried again alone, by
//     a producer that has one record under way at a time, before it is called a permanent failure.
//   - Outages. sarama goes on failing for 10 s after the broker is back. The first sign of an outage fences the
//     producer; a Probe that succeeds lets the next Publish make a new one.
//   - Bounds. Publish, Probe, Check and Close end with their context or with a time limit, whatever sarama does: closing
//     the connections under it ends everything it waits for.
//
// The walk of a batch: publication plans what may be sent now (plan.go) → producer.send hands a round to sarama →
// producer's two goroutines bring back the answers → publication classifies them (classify.go) and plans again.
//
// Who owns which goroutine: each producer has two, which end when sarama has closed its channels; the Sink waits for them
// in Close. sarama's own end with its producer, save the timers of its circuit breakers: they sleep for up to 10 s after an
// outage.
//
// Invariants: an event is acknowledged only by the broker's answer to it. An error's class comes from its type or code,
// never from its text. No password reaches an error or a log line.
package kafka
