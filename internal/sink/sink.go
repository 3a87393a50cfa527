// Package sink is the contract between the relay and the brokers. Each broker is a package below it, and passes the
// suite in sink/sinktest.
package sink

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Sink publishes events to a broker. All methods may be called from several goroutines at once; the relay never has two
// Publish calls under way that hold events of the same key.
type Sink interface {
	// Publish sends the events in order and returns when the outcome of each is known: a slice as long as events, with
	// nil for an event whose durable acknowledgement was received and otherwise an error whose class (event.ClassOf)
	// says what it means. It returns within a bound of its own when the broker is silent (class Unavailable), and soon
	// after ctx is cancelled. An event that follows a retryably failed one of the same key is not attempted
	// (event.ErrNotAttempted) where the protocol allows that.
	Publish(ctx context.Context, events []*event.Event) []error

	// Probe reports whether the broker can take events now. After an outage the relay calls it at a growing pause until
	// it succeeds, and only then publishes again; a sink that must replace its client does so here.
	Probe(ctx context.Context) error

	// Check looks at the broker for the check command. topics are those known in advance, possibly none.
	Check(ctx context.Context, topics []string) []preflight.Finding

	// Close releases everything, waiting no longer than ctx. Publish calls still under way return.
	Close(ctx context.Context) error
}
