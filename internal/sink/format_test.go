package sink_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func TestRawHeadersKeepTheRowsOrderAndAddTheRelaysOwn(t *testing.T) {
	e := &event.Event{
		MessageID: [16]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef},
		Type:      "OrderPlaced",
		CreatedAt: time.Date(2026, 11, 30, 22, 11, 29, 123456789, time.FixedZone("", 3600)),
		Headers: []event.Header{
			{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			{Name: "message_id", Value: "forged"}, {Name: "a", Value: ""}, {Name: "event_type", Value: "forged"}, {Name: "created_at", Value: "forged"},
		},
	}
	want := []event.Header{
		{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{Name: "a", Value: ""},
		{Name: "message_id", Value: "01234567-89ab-cdef-0123-456789abcdef"},
		{Name: "event_type", Value: "OrderPlaced"},
		{Name: "created_at", Value: "2026-11-30T21:11:29.123456Z"},
	}
	if d := cmp.Diff(want, sink.RawHeaders(nil, e)); d != "" {
		t.Error(d)
	}
}

func TestRawHeadersLeaveOutWhatTheRowDoesNotHave(t *testing.T) {
	e := &event.Event{Headers: []event.Header{{Name: "event_type", Value: "the row's own"}}}
	want := []event.Header{
		{Name: "event_type", Value: "the row's own"},
		{Name: "message_id", Value: "00000000-0000-0000-0000-000000000000"},
	}
	if d := cmp.Diff(want, sink.RawHeaders(nil, e)); d != "" {
		t.Error(d)
	}
}
