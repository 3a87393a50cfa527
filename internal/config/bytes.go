package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size: a whole number of bytes, or a number with one of the units B, kB, MB, GB, KiB, MiB and GiB.
type Bytes int64

// units in the order in which they are tried: as suffixes (B is one of all others) and for printing.
var units = []struct {
	name string
	size float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

// ParseBytes reads a size. Upper and lower case mean the same.
func ParseBytes(s string) (Bytes, error) {
	number, size := strings.ToUpper(strings.TrimSpace(s)), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, strings.ToUpper(u.name)); ok {
			number, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	f, err := parseFloat(number)
	// Beyond 2^53 a float64 is no longer exact, and nobody means such a size.
	if err != nil || math.Abs(f*size) > 1<<53 {
		return 0, errors.New("a size such as 64MiB, 1MB or 1048576")
	}
	return Bytes(f * size), nil
}

// String is exact, in the largest binary or else decimal unit that has no fraction.
func (b Bytes) String() string {
	for _, u := range units {
		if size := Bytes(u.size); size > 1 && b != 0 && b%size == 0 {
			return strconv.FormatInt(int64(b/size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseDuration is time.ParseDuration, with days, and with 0 as the only number that needs no unit.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := parseInt(days); err == nil && n >= 0 && n <= 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("a duration with its unit, such as 500ms, 10s, 4h or 7d")
	}
	return d, nil
}

// formatDuration is the shortest spelling: 24h where time.Duration says 24h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if d == 0 {
		return "0"
	}
	return s
}

func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

// parseFloat takes no NaN, which would pass every bound.
func parseFloat(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && math.IsNaN(f) {
		err = strconv.ErrSyntax
	}
	return f, err
}
