package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// breakerTimer is the goroutine by which sarama's circuit breaker waits 10 s, whatever becomes of its producer.
var breakerTimer = goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer")

// meters is the goroutine that sarama starts in kafkatest, where its metrics are on.
var meters = goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.Closing(m), breakerTimer, meters) }
