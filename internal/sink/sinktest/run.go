package sinktest

import (
	"testing"
)

// Run runs the suite. Its tests run one after the other, since some stop the server.
func Run(t *testing.T, target Target) {
	target.fill()
	for _, test := range []struct {
		name   string
		run    func(*testing.T, *Target)
		needed bool
	}{
		{"every payload arrives byte for byte", payloadsArrive, true},
		{"keys arrive, NULL ones too", keysArrive, true},
		{"headers arrive once each", headersArrive, !target.NoHeaders},
		{"nothing to publish is no error", nothingToPublish, true},
		{"each key keeps its order over many calls", keysKeepTheirOrder, true},
		{"many callers at once lose and double nothing", manyCallers, true},
		{"a refused event is permanent and its neighbours arrive", refusedEvent, target.Unacceptable != nil},
		{"a cancelled Publish returns soon and the sink goes on", cancelledPublish, true},
		{"Publish with an ended context sends nothing", endedContext, true},
		{"Probe and Check find a running server in order", probeRunning, true},
		{"Close ends the calls that are under way", closeUnderWay, true},
		{"after Close nothing is accepted", afterClose, true},
		{"an outage is unavailable and over after a Probe", outage, target.Stop != nil},
		{"a sink made during an outage works after it", madeDuringOutage, target.Stop != nil},
		{"Close returns during an outage", closeDuringOutage, target.Stop != nil},
	} {
		if test.needed {
			t.Run(test.name, func(t *testing.T) { test.run(t, &target) })
		}
	}
}
