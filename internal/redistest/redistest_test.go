package redistest_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestAKilledServerComesBackWithWhatItHad(t *testing.T) {
	t.Parallel()
	s := redistest.NewServer(t, redistest.Options{})
	for range 100 {
		s.Do(t, "xadd", "s", "*", "field", "value")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Try("ping"); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries := s.AwaitEntries(t, "s", 100, 5*time.Second)
	if len(entries) != 100 || entries[99].Fields["field"] != "value" {
		t.Errorf("%d entries", len(entries))
	}
}

func TestAClosedServerIsGone(t *testing.T) {
	t.Parallel()
	s, err := redistest.StartServer(t.Context(), redistest.Options{Install: true})
	if err != nil {
		t.Fatal(err)
	}
	pid := s.Pid()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the process is still there")
	}
	if _, err := os.Stat(s.Log()); err == nil {
		t.Error("the directory is still there")
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a closed server starts")
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := redistest.StartServer(t.Context(), redistest.Options{Install: true, Settings: map[string]string{"nonsense": "1"}})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error = %v", err)
	}
}

func TestPasswordsAndUsersAreAskedFor(t *testing.T) {
	t.Parallel()
	s := redistest.NewServer(t, redistest.Options{Password: "secret", Users: []string{"alice on >wonderland ~orders* +xadd"}})
	for _, test := range []struct{ user, password, stream, prefix string }{
		{"", "", "orders", "NOAUTH"}, {"alice", "wrong", "orders", "WRONGPASS"}, {"alice", "wonderland", "other", "NOPERM"}, {"alice", "wonderland", "orders", ""}, {"", "secret", "other", ""},
	} {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: test.user, Password: test.password, Protocol: 2, DisableIdentity: true})
		err := c.Do(t.Context(), "xadd", test.stream, "*", "a", "b").Err()
		if (err == nil) != (test.prefix == "") || err != nil && !strings.Contains(err.Error(), test.prefix) {
			t.Errorf("%+v: %v", test, err)
		}
		c.Close()
	}
}

func TestTLSNeedsTheRightAuthority(t *testing.T) {
	t.Parallel()
	s := redistest.NewServer(t, redistest.Options{TLS: true})
	for file, works := range map[string]bool{s.Certificates().CA: true, s.Certificates().OtherCA: false} {
		pem, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		c := redis.NewClient(&redis.Options{Addr: s.TLSAddr(), Protocol: 2, MaxRetries: -1, DialerRetries: 1, TLSConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
		if err := c.Ping(t.Context()).Err(); (err == nil) != works {
			t.Errorf("%s: %v", file, err)
		}
		c.Close()
	}
}

func TestAReplicaFollowsItsMaster(t *testing.T) {
	t.Parallel()
	s := redistest.NewServer(t, redistest.Options{})
	r := s.NewReplica(t)
	s.Do(t, "xadd", "s", "*", "field", "value")
	r.AwaitEntries(t, "s", 1, 5*time.Second)
	if _, err := r.Try("xadd", "s", "*", "field", "value"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a replica takes writes: %v", err)
	}
}

func TestSentinelsPromoteTheReplicaOfAKilledMaster(t *testing.T) {
	t.Parallel()
	c := redistest.NewSentinel(t, redistest.Options{})
	if err := c.Servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	c.AwaitMaster(t, c.Servers[1], 30*time.Second)
}

func TestEachNodeOfAClusterHasItsStreams(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{})
	for i, n := range c.Nodes {
		stream := c.StreamOn(t, i)
		n.Do(t, "xadd", stream, "*", "a", "b")
		other := c.Nodes[(i+1)%3]
		if _, err := other.Try("xadd", stream, "*", "a", "b"); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
			t.Errorf("another node takes the stream: %v", err)
		}
	}
}

func TestAPausedServerIsSilent(t *testing.T) {
	t.Parallel()
	s := redistest.NewServer(t, redistest.Options{})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Protocol: 2, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 100 * time.Millisecond})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a paused server answers")
	}
	if err := s.Continue(); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 5*time.Second, "an answer", func() error { return c.Ping(t.Context()).Err() })
}
