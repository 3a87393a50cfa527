package admin

import (
	"fmt"
	"time"
)

// age words a number of seconds.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// ago is the age of a time.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "unknown"
	}
	return age(now.Sub(then).Truncate(time.Second).Seconds())
}

// clock words a time for people; its machine form stands beside it.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// size words a number of bytes.
func size(bytes int64) string {
	value, unit := float64(bytes), 0
	for ; value >= 1024 && unit < 4; unit++ {
		value /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit-1])
}

// capped words a count that may have stopped at a bound.
func capped(n int64, stopped bool) string {
	if stopped {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}
