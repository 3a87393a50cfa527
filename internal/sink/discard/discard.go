// Package discard is a sink that accepts every event and drops it, for measuring everything that is not a broker.
package discard

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Sink implements sink.Sink. It has no state.
type Sink struct{}

// Publish accepts all events at once.
func (Sink) Publish(_ context.Context, events []*event.Event) []error {
	return make([]error, len(events))
}

// Probe always succeeds.
func (Sink) Probe(context.Context) error { return nil }

// Check says that nothing is delivered.
func (Sink) Check(context.Context, []string) []preflight.Finding {
	return []preflight.Finding{{
		Severity: preflight.Warning,
		Subject:  "sink discard",
		Detail:   "Every event is marked as published and dropped: this sink is for measurements only.",
		Remedy:   "sink.kind: kafka",
	}}
}

// Close has nothing to release.
func (Sink) Close(context.Context) error { return nil }
