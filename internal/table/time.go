package table

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// epoch is 2000-01-01 00:00:00 UTC, from which Postgres counts microseconds, in Unix seconds.
const epoch = 946_684_800

// The ends of what a timestamp can hold: datatype/timestamp.h. Infinite ones become these.
var (
	latest   = time.Date(294276, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	earliest = time.Date(-4713, 11, 24, 0, 0, 0, 0, time.UTC)
)

var errTime = errors.New("a timestamp that isn't in ISO form; set DateStyle to ISO for the connection")

// instant reads a timestamptz, or a timestamp, which is taken as UTC.
func instant(f Field) (time.Time, error) {
	if f.Format == Text {
		return parseTime(f.Data)
	}
	if len(f.Data) != 8 {
		return time.Time{}, wrongLength(kindTimestamptz, len(f.Data))
	}
	switch us := int64(binary.BigEndian.Uint64(f.Data)); us {
	case math.MaxInt64:
		return latest, nil
	case math.MinInt64:
		return earliest, nil
	default:
		// In two steps: the sum of latest and the epoch is more than 63 bits of microseconds.
		return time.Unix(us/1e6+epoch, us%1e6*1000).UTC(), nil
	}
}

// parseTime reads the ISO output form: 2026-11-30 21:11:29.123456+05:30, where fraction and zone may be missing, the
// year may have more than four digits, the zone may have minutes and seconds, and " BC" may follow.
func parseTime(b []byte) (time.Time, error) {
	switch string(b) {
	case "infinity":
		return latest, nil
	case "-infinity":
		return earliest, nil
	}
	s := timeText{b: b}
	year := s.digits(4, 6)
	month := s.after('-').digits(2, 2)
	day := s.after('-').digits(2, 2)
	hour := s.after(' ').digits(2, 2)
	minute := s.after(':').digits(2, 2)
	sec := s.after(':').digits(2, 2)
	micros := s.fraction()
	offset := s.zone()
	if string(s.b) == " BC" {
		year, s.b = 1-year, nil
	}
	if s.bad || len(s.b) > 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 || minute > 59 || sec > 60 {
		return time.Time{}, errTime
	}
	return time.Date(year, time.Month(month), day, hour, minute, sec-offset, micros*1000, time.UTC), nil
}

// timeText takes a timestamp apart; bad is set at the first thing that doesn't fit, and stays.
type timeText struct {
	b   []byte
	bad bool
}

func (s *timeText) after(c byte) *timeText {
	if len(s.b) == 0 || s.b[0] != c {
		s.bad = true
		return s
	}
	s.b = s.b[1:]
	return s
}

// digits reads a number of least to most digits.
func (s *timeText) digits(least, most int) int {
	n, i := 0, 0
	for ; i < len(s.b) && i < most && '0' <= s.b[i] && s.b[i] <= '9'; i++ {
		n = n*10 + int(s.b[i]-'0')
	}
	if i < least {
		s.bad = true
	}
	s.b = s.b[i:]
	return n
}

// fraction reads up to six digits after a point, as microseconds.
func (s *timeText) fraction() int {
	if len(s.b) == 0 || s.b[0] != '.' {
		return 0
	}
	before := len(s.b) - 1
	n := s.after('.').digits(1, 6)
	for used := before - len(s.b); used < 6; used++ {
		n *= 10
	}
	return n
}

// zone reads the offset from UTC in seconds; none is UTC.
func (s *timeText) zone() int {
	if len(s.b) == 0 || s.b[0] != '+' && s.b[0] != '-' {
		return 0
	}
	sign := 1
	if s.b[0] == '-' {
		sign = -1
	}
	s.b = s.b[1:]
	seconds := s.digits(2, 2) * 3600
	for _, unit := range [...]int{60, 1} {
		if len(s.b) > 0 && s.b[0] == ':' {
			seconds += s.after(':').digits(2, 2) * unit
		}
	}
	return sign * seconds
}
