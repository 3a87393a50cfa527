package discard_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/discard"
)

var _ sink.Sink = discard.Sink{}

func TestEveryEventIsAccepted(t *testing.T) {
	got := discard.Sink{}.Publish(t.Context(), make([]*event.Event, 3))
	if len(got) != 3 || got[0] != nil || got[1] != nil || got[2] != nil {
		t.Errorf("Publish = %v", got)
	}
}

func TestCheckWarnsThatNothingIsDelivered(t *testing.T) {
	if got := preflight.Worst(discard.Sink{}.Check(t.Context(), nil)); got != preflight.Warning {
		t.Errorf("Check = %v", got)
	}
}

func BenchmarkPublish(b *testing.B) {
	events := make([]*event.Event, 200)
	for b.Loop() {
		discard.Sink{}.Publish(b.Context(), events)
	}
}
