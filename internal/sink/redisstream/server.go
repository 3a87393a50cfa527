package redisstream

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is one Redis server that takes writes, and what is known of it.
type server struct {
	*redis.Client

	mu         sync.Mutex // guards the rest
	asked      bool
	idempotent bool      // it has XADD … IDMP
	clock      time.Time // its clock when we asked
	askedAt    time.Time // by our monotonic clock
}

// learn asks once whether the server takes transactions, since without MULTI each XADD would count for itself, and for
// what the entries' form depends on.
func (s *server) learn(ctx context.Context, c *Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		return nil
	}
	conn := s.Conn()
	defer func() { _ = conn.Close() }() // it goes back to the pool, or is broken
	if err := begin(ctx, conn); err != nil {
		return err
	}
	if err := end(ctx, conn); err != nil {
		return err
	}
	// What the relay's user may not ask stays unknown.
	if *c.Idempotent {
		info, err := conn.Info(ctx, "server").Result()
		if ignoreServer(err) != nil {
			return err
		}
		s.idempotent = offersIDMP(info)
	}
	if c.MaxAge > 0 {
		clock, err := conn.Time(ctx).Result()
		if ignoreServer(err) != nil {
			return err
		}
		s.clock, s.askedAt = clock, time.Now()
	}
	s.asked = true
	return nil
}

// oldest is the smallest id that an entry may have with this age, by the server's clock; "" while that is unknown.
func (s *server) oldest(age time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age == 0 || s.clock.IsZero() {
		return ""
	}
	return strconv.FormatInt(max(0, s.clock.Add(time.Since(s.askedAt)-age).UnixMilli()), 10)
}

func (s *server) isIdempotent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idempotent
}

// offersIDMP says whether INFO is that of a server with idempotent XADD: Redis 8.6 and later. Valkey calls itself a Redis
// of the version it comes from.
func offersIDMP(info string) bool {
	if infoValue(info, "valkey_version") != "" {
		return false
	}
	major, minor := versionOf(infoValue(info, "redis_version"))
	return major > 8 || major == 8 && minor >= 6
}

// infoValue is one value of INFO, "" when it isn't there.
func infoValue(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func versionOf(version string) (major, minor int) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, _ = strconv.Atoi(first) // 0 for what is no version
	minor, _ = strconv.Atoi(second)
	return major, minor
}
