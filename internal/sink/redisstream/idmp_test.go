package redisstream

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestAServerThatRefusesIdempotentXADDAfterAllBlamesNoEvent(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	if offersIDMP("redis_version:" + server.Version(t)) {
		return // it wouldn't refuse
	}
	s, err := New(Config{URL: server.URL()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	owner, err := s.link.owner(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	owner.asked, owner.idempotent = true, true // as after a failover to an older server
	stream := redistest.StreamName(t)
	events := []*event.Event{sinktest.Event(stream, "a", "1"), sinktest.Event(stream, "b", "2")}
	for i, err := range s.Publish(t.Context(), events) {
		if event.ClassOf(err) != event.Unavailable || event.ReasonOf(err) != "idempotence_refused" {
			t.Errorf("event %d: %v (%v)", i, err, event.ClassOf(err))
		}
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("Probe: %v", err)
	}
	for i, err := range s.Publish(t.Context(), events) {
		if err != nil {
			t.Errorf("event %d without IDMP: %v", i, err)
		}
	}
	if n := server.Len(t, stream); n != 2 {
		t.Errorf("%d entries", n)
	}
}
