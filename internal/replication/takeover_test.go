package replication

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNextAttemptComesNoLaterThanTheStaleWalsenderMayBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var never takeover
		if got := never.within(8 * time.Second); got != 8*time.Second {
			t.Errorf("without a walsender in the way: %v", got)
		}
		met := takeover{pid: 1, since: time.Now()}
		time.Sleep(takeoverAfter - time.Second)
		if got := met.within(8 * time.Second); got != time.Second {
			t.Errorf("a second before: %v", got)
		}
		if got := met.within(time.Millisecond); got != time.Millisecond {
			t.Errorf("a short pause became %v", got)
		}
		time.Sleep(time.Second)
		if got := met.within(8 * time.Second); got != 8*time.Second {
			t.Errorf("afterwards: %v", got)
		}
	})
}
