package redistest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// commandTimeout bounds one command of the helpers.
const commandTimeout = 20 * time.Second

var names atomic.Int64

// StreamName is a name that no other test of the process uses. It is made of the test's name, to be found in logs.
func StreamName(t TB) string {
	clean := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
	return fmt.Sprintf("%.60s-%d", clean, names.Add(1))
}

// Do runs a command on the server and returns its answer; an error fails the test.
func (s *Server) Do(t TB, args ...any) any {
	t.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		t.Fatalf("redis: %v: %v", args, err)
	}
	return answer
}

// Try runs a command on the server. Nil is the answer for a missing key.
func (s *Server) Try(args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	answer, err := s.client.Do(ctx, args...).Result()
	if err == redis.Nil { //nolint:errorlint // never wrapped
		return nil, nil
	}
	return answer, err
}

// Info is one value of INFO, "" when there is none.
func (s *Server) Info(t TB, section, name string) string {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(s.Do(t, "info", section))) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Version is the server's version.
func (s *Server) Version(t TB) string { return s.Info(t, "server", "redis_version") }

// Entry is one entry of a stream.
type Entry struct {
	ID     string
	Fields map[string]string
	Order  []string // the fields' names as they come
}

// Entries are all entries of a stream, oldest first.
func (s *Server) Entries(t TB, stream string) []Entry {
	t.Helper()
	var entries []Entry
	for _, raw := range s.Do(t, "xrange", stream, "-", "+").([]any) {
		entry := raw.([]any)
		e := Entry{ID: entry[0].(string), Fields: map[string]string{}}
		fields := entry[1].([]any)
		for i := 0; i < len(fields); i += 2 {
			name := fields[i].(string)
			if _, twice := e.Fields[name]; twice {
				t.Errorf("entry %s has the field %s twice", e.ID, name)
			}
			e.Fields[name] = fields[i+1].(string)
			e.Order = append(e.Order, name)
		}
		entries = append(entries, e)
	}
	return entries
}

// Len is the number of entries of a stream.
func (s *Server) Len(t TB, stream string) int {
	t.Helper()
	return int(s.Do(t, "xlen", stream).(int64))
}

// AwaitEntries waits until a stream has at least n entries and returns all of them.
func (s *Server) AwaitEntries(t TB, stream string, n int, timeout time.Duration) []Entry {
	t.Helper()
	testbed.Eventually(t, timeout, fmt.Sprintf("%d entries of %s", n, stream), func() (bool, error) {
		length := s.Len(t, stream)
		if length < n {
			return false, fmt.Errorf("there are %d", length)
		}
		return true, nil
	})
	return s.Entries(t, stream)
}
