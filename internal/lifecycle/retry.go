package lifecycle

import (
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"
)

// Retry is the policy for rows whose publishing failed.
type Retry struct {
	// MaxAttempts is the number of failed attempts that makes a row DEAD. 0: none does.
	MaxAttempts int
	// Initial is the pause after the first failure; 1 s when 0.
	Initial time.Duration
	// Max bounds the pause, before jitter; 5 min when 0.
	Max time.Duration
	// Multiplier is what the pause grows by with each failure; 2 when 0.
	Multiplier float64
	// Jitter is how far the pause may be off to each side, as a part of it (0 to 1).
	Jitter float64
}

func (r Retry) withDefaults() Retry {
	def(&r.Initial, time.Second)
	def(&r.Max, 5*time.Minute)
	def(&r.Multiplier, 2)
	r.Jitter = min(max(r.Jitter, 0), 1)
	return r
}

// delay is the pause after the given number of failed attempts (from 1).
func (r Retry) delay(attempts int) time.Duration {
	d, most := float64(r.Initial), float64(r.Max)
	for i := 1; i < attempts && d < most && r.Multiplier > 1; i++ {
		d *= r.Multiplier
	}
	d = min(d, most)
	return time.Duration(d * (1 + r.Jitter*(2*rand.Float64()-1)))
}

// exhausted tells whether so many failed attempts are the end.
func (r Retry) exhausted(attempts int) bool { return r.MaxAttempts > 0 && attempts >= r.MaxAttempts }

// maxError is the length of what last_error keeps, in characters.
const maxError = 1000

// errorText is an error as last_error takes it: valid UTF-8 without NUL, and short.
func errorText(err error) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if utf8.RuneCountInString(s) <= maxError {
		return s
	}
	return string([]rune(s)[:maxError-1]) + "…"
}
