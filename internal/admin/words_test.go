package admin

import (
	"testing"
	"time"
)

func TestNumbersAreWordedForPeople(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, got := range map[string]string{
		"0s": age(-1), "250ms": age(0.25), "1.5s": age(1.49), "1m31s": age(90.5), "25h0m0s": age(90000),
		"512 B": size(512), "4.7 KiB": size(4800), "1.0 MiB": size(1 << 20), "2048.0 TiB": size(1 << 51), "-1 B": size(-1),
		"7": capped(7, false), "10001 or more": capped(10001, true),
		"unknown": ago(now, time.Time{}), "1m0s": ago(now, now.Add(-time.Minute-time.Millisecond)),
	} {
		if got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
