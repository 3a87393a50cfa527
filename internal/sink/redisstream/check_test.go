package redisstream_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
)

// finding demands a finding whose detail has a part.
func finding(t *testing.T, findings []preflight.Finding, severity preflight.Severity, part string) {
	t.Helper()
	for _, f := range findings {
		if strings.Contains(f.Subject+": "+f.Detail, part) {
			if f.Severity != severity {
				t.Errorf("%q is a %v, want %v", part, f.Severity, severity)
			}
			if f.Severity == preflight.Failure && f.Remedy == "" {
				t.Errorf("%q has no remedy", f.Detail)
			}
			return
		}
	}
	t.Errorf("nothing says %q: %+v", part, findings)
}

func TestCheckTellsWhatAnOperatorShouldKnow(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Settings: map[string]string{"appendonly": "no"}, Users: []string{"relay on >x ~orders* ~list +@all", "dumb on >x ~* +multi +exec +discard +xadd +ping"}})
	config := redisstream.Config{URL: "redis://relay:x@" + server.Addr()}
	s := opened(t, config)
	server.Do(t, "xadd", "orders.old", "*", "a", "b")
	server.Do(t, "rpush", "list", "a")
	topics := []string{"orders.new", "orders.old", "list", "secrets", "orders.old"}
	findings := s.Check(t.Context(), topics)
	finding(t, findings, preflight.OK, "answers and takes writes")
	finding(t, findings, preflight.Warning, "no append-only file")
	finding(t, findings, preflight.Note, "maxmemory isn't set")
	finding(t, findings, preflight.OK, "stream orders.new: It doesn't exist yet")
	finding(t, findings, preflight.Note, "stream orders.old: It has 1 entry, and the relay trims nothing")
	finding(t, findings, preflight.Failure, "stream list: The key holds a list")
	finding(t, findings, preflight.Failure, "stream secrets: The relay's user may not write to it")
	if n := strings.Count(subjects(findings), "stream orders.old"); n != 1 {
		t.Errorf("a topic is told of %d times", n)
	}
	for _, name := range topics[:1] {
		if server.Do(t, "exists", name) != int64(0) {
			t.Errorf("Check made %s", name)
		}
	}

	server.Do(t, "config", "set", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	finding(t, s.Check(t.Context(), nil), preflight.Warning, "allkeys-lru")
	config.MaxLen = 10
	finding(t, opened(t, config).Check(t.Context(), topics[1:2]), preflight.OK, "It has 1 entry.")
	finding(t, opened(t, redisstream.Config{URL: "redis://dumb:x@" + server.Addr()}).Check(t.Context(), topics[:1]), preflight.Note, "doesn't let the relay's user ask")

	server.Do(t, "config", "set", "maxmemory", "1", "maxmemory-policy", "noeviction")
	finding(t, s.Check(t.Context(), topics[:1]), preflight.Failure, "stream orders.new: It can't be written to: OOM")
	findings = opened(t, redisstream.Config{URL: server.URL()}).Check(t.Context(), nil)
	finding(t, findings, preflight.Failure, "It can't be used: OOM")
	if !strings.Contains(findings[0].Remedy, "maxmemory") {
		t.Errorf("remedy %q", findings[0].Remedy)
	}
}

func TestCheckCountsReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Users: []string{"dumb on >x ~* +@all -wait"}})
	waiting := redisstream.Config{URL: server.URL(), WaitReplicas: 1}
	finding(t, opened(t, waiting).Check(t.Context(), nil), preflight.Failure, "0 replicas followed")
	server.NewReplica(t)
	findings := opened(t, waiting).Check(t.Context(), nil)
	finding(t, findings, preflight.Note, "min-replicas-to-write isn't set")
	if preflight.Worst(findings) == preflight.Failure {
		t.Errorf("%+v", findings)
	}
	finding(t, opened(t, redisstream.Config{URL: server.URL()}).Check(t.Context(), nil), preflight.Note, "1 replica, which the relay doesn't wait for")
	waiting.URL = "redis://dumb:x@" + server.Addr()
	finding(t, opened(t, waiting).Check(t.Context(), nil), preflight.Failure, "may not WAIT")
}

func TestCheckLooksAtEachNodeOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	stream := c.StreamOn(t, 2)
	findings := opened(t, redisstream.Config{Addrs: c.Addrs()[:1]}).Check(t.Context(), []string{stream})
	for _, addr := range c.Addrs() {
		finding(t, findings, preflight.OK, "redis "+addr+": Version")
	}
	finding(t, findings, preflight.OK, "stream "+stream)
	c.Nodes[2].Do(t, "config", "set", "maxmemory", "1")
	finding(t, opened(t, redisstream.Config{Addrs: c.Addrs()}).Check(t.Context(), []string{stream}), preflight.Failure, "It can't be written to: OOM")
}

func TestCheckSaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, config := range []redisstream.Config{
		{URL: "redis://127.0.0.1:1"}, {Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}, {Addrs: []string{"127.0.0.1:1"}, MasterName: "orders"},
	} {
		findings := opened(t, config).Check(t.Context(), []string{"orders"})
		finding(t, findings, preflight.Failure, "It can't be used")
		if !strings.Contains(findings[0].Remedy, "sink.redis") {
			t.Errorf("remedy %q of %q", findings[0].Remedy, findings[0].Detail)
		}
	}
}

func subjects(findings []preflight.Finding) string {
	var all strings.Builder
	for _, f := range findings {
		all.WriteString(f.Subject + "\n")
	}
	return all.String()
}
