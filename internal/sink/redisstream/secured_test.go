package redisstream_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/redistest"
	"github.com/cdc-relay/cdc-relay/internal/sink/redisstream"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestG9_TheUserOfTheDocsMayDoAllThatTheRelayDoes(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Users: []string{
		"relay on >secret resetchannels ~orders* +@connection +@transaction +xadd +info +time +wait +type +xlen",
		"least on >secret resetchannels ~orders* -@all +multi +exec +discard +xadd",
	}})
	replica := server.NewReplica(t)
	s := opened(t, redisstream.Config{URL: "redis://relay:secret@" + server.Addr(), MaxAge: 1 << 40, WaitReplicas: 1, WaitTimeout: 5 * time.Second})
	published(t, s, sinktest.Event("orders.a", "k", "1"))
	if n := replica.Len(t, "orders.a"); n != 1 {
		t.Errorf("%d entries", n)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("Probe: %v", err)
	}
	for _, f := range s.Check(t.Context(), []string{"orders.a", "orders.b"}) {
		if f.Severity == preflight.Failure || f.Severity == preflight.Warning {
			t.Errorf("%+v", f)
		}
	}
	least := opened(t, redisstream.Config{URL: "redis://least:secret@" + server.Addr(), MaxAge: 1 << 40})
	published(t, least, sinktest.Event("orders.a", "k", "1"))
	if err := least.Probe(t.Context()); err != nil {
		t.Errorf("Probe: %v", err)
	}
}

func TestAStreamThatMayNotBeWrittenToIsPermanentForItsEventsOnly(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Users: []string{"relay on >secret ~allowed* +@all"}})
	config := redisstream.Config{URL: "redis://relay:secret@" + server.Addr()}
	s := opened(t, config)
	for range 2 {
		results := s.Publish(t.Context(), []*event.Event{
			sinktest.Event("allowed", "a", "1"), sinktest.Event("forbidden", "a", "2"), sinktest.Event("allowed", "a", "3"), sinktest.Event("forbidden too", "b", "4"), sinktest.Event("forbidden", "", "5"),
		})
		for i, forbidden := range []bool{false, true, false, true, true} {
			if forbidden && (event.ClassOf(results[i]) != event.Permanent || event.ReasonOf(results[i]) != "not_permitted") || !forbidden && results[i] != nil {
				t.Errorf("event %d: %v (%v)", i, results[i], event.ClassOf(results[i]))
			}
		}
	}
	// Alone it is permanent too, since he may write elsewhere.
	results := s.Publish(t.Context(), []*event.Event{sinktest.Event("forbidden", "a", "6")})
	if event.ClassOf(results[0]) != event.Permanent {
		t.Errorf("alone: %v (%v)", results[0], event.ClassOf(results[0]))
	}
	if n := server.Len(t, "allowed"); n != 4 {
		t.Errorf("%d entries", n)
	}
}

func TestAUserWhoMayWriteNowhereLetsNoEventDie(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Users: []string{"relay on >secret ~* +@all"}})
	s := opened(t, redisstream.Config{URL: "redis://relay:secret@" + server.Addr()})
	published(t, s, sinktest.Event("orders", "k", "0"))
	for _, slip := range [][]any{{"-xadd"}, {"resetkeys"}, {"-multi"}} {
		server.Do(t, append([]any{"acl", "setuser", "relay"}, slip...)...)
		for _, stream := range []string{"orders", "others"} {
			results := s.Publish(t.Context(), []*event.Event{sinktest.Event(stream, "k", "1"), sinktest.Event(stream, "j", "2")})
			unavailable(t, "not_permitted", results)
			if got := results[0].Error(); !contains(got, "ACL SETUSER") {
				t.Errorf("nothing to do about it is said: %s", got)
			}
			_ = s.Probe(t.Context())
		}
		server.Do(t, "acl", "setuser", "relay", "~*", "+@all")
		recovered(t, s)
		published(t, s, sinktest.Event("orders", "k", "3"))
	}
	for _, stream := range []string{"orders", "others"} {
		for _, e := range server.Entries(t, stream) {
			if e.Fields["id"] == "" {
				t.Error("a Probe has written its entry")
			}
		}
	}
}

func TestAWrongPasswordIsUnavailableAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{Password: "right", Users: []string{"relay on >right ~* +@all"}})
	for _, user := range []string{":wr0ng", "relay:wr0ng", "nobody:wr0ng", ""} {
		s := opened(t, redisstream.Config{URL: "redis://" + user + "@" + server.Addr()})
		results := s.Publish(t.Context(), []*event.Event{sinktest.Event("orders", "k", "1")})
		unavailable(t, "authentication_failed", results)
		unavailable(t, "authentication_failed", []error{s.Probe(t.Context())})
		findings := s.Check(t.Context(), nil)
		if preflight.Worst(findings) != preflight.Failure || !contains(findings[0].Remedy, "sink.redis.url") {
			t.Errorf("Check: %+v", findings)
		}
		if got := results[0].Error() + findings[0].Detail + findings[0].Subject; contains(got, "wr0ng") {
			t.Errorf("the password is told: %s", got)
		}
	}
	for _, user := range []string{":right", "relay:right"} {
		published(t, opened(t, redisstream.Config{URL: "redis://" + user + "@" + server.Addr()}), sinktest.Event("orders", "k", "1"))
	}
}

func TestG9_TLSIsVerified(t *testing.T) {
	t.Parallel()
	server := redistest.NewServer(t, redistest.Options{TLS: true})
	strict := redistest.NewServer(t, redistest.Options{TLS: true, Settings: map[string]string{"tls-auth-clients": "yes"}})
	certs := server.Certificates()
	for _, test := range []struct {
		name   string
		url    string
		tls    redisstream.TLS
		reason string // "": it works. TLS 1.3 tells of a bad client only after its first write, which may be refused before.
	}{
		{"the right authority", "rediss://" + server.TLSAddr(), redisstream.TLS{CAFile: certs.CA}, ""},
		{"the same by a setting", "redis://" + server.TLSAddr(), redisstream.TLS{Enabled: true, CAFile: certs.CA}, ""},
		{"the right name", "rediss://" + server.TLSAddr(), redisstream.TLS{CAFile: certs.CA, ServerName: "localhost"}, ""},
		{"anybody", "rediss://" + server.TLSAddr(), redisstream.TLS{InsecureSkipVerify: true}, ""},
		{"another authority", "rediss://" + server.TLSAddr(), redisstream.TLS{CAFile: certs.OtherCA}, "tls_failed"},
		{"the system's authorities", "rediss://" + server.TLSAddr(), redisstream.TLS{}, "tls_failed"},
		{"another name", "rediss://" + server.TLSAddr(), redisstream.TLS{CAFile: certs.CA, ServerName: "elsewhere"}, "tls_failed"},
		{"a client certificate", "rediss://" + strict.TLSAddr(), redisstream.TLS{CAFile: strict.Certificates().CA, CertFile: strict.Certificates().ClientCert, KeyFile: strict.Certificates().ClientKey}, ""},
		{"no client certificate", "rediss://" + strict.TLSAddr(), redisstream.TLS{CAFile: strict.Certificates().CA}, "tls_failed or connection_lost"},
		{"a client certificate of somebody else", "rediss://" + strict.TLSAddr(), redisstream.TLS{CAFile: strict.Certificates().CA, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}, "tls_failed or connection_lost"},
		{"plain to a TLS port", "redis://" + server.TLSAddr(), redisstream.TLS{}, "connection_lost"},
	} {
		s := opened(t, redisstream.Config{URL: test.url, TLS: test.tls, Timeout: 20 * time.Second})
		results := s.Publish(t.Context(), []*event.Event{sinktest.Event("orders", "k", test.name)})
		switch {
		case test.reason == "" && results[0] != nil:
			t.Errorf("%s: %v", test.name, results[0])
		case test.reason != "" && (event.ClassOf(results[0]) != event.Unavailable || !contains(test.reason, event.ReasonOf(results[0]))):
			t.Errorf("%s: %v (%v), want %s", test.name, results[0], event.ClassOf(results[0]), test.reason)
		}
	}
	if n := server.Len(t, "orders"); n != 4 {
		t.Errorf("%d entries", n)
	}
}

func TestTLSToAPortWithoutItIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := opened(t, redisstream.Config{URL: "rediss://" + server.Addr()})
	results := s.Publish(t.Context(), []*event.Event{sinktest.Event("orders", "k", "p")})
	if event.ClassOf(results[0]) != event.Unavailable {
		t.Errorf("%v (%v)", results[0], event.ClassOf(results[0]))
	}
}

func TestAUnixSocketWorksToo(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/redis.sock"
	server := redistest.NewServer(t, redistest.Options{Password: "se/cret", Settings: map[string]string{"unixsocket": path}})
	published(t, opened(t, redisstream.Config{URL: "unix://:se%2Fcret@" + path + "?db=3"}), sinktest.Event("orders", "k", "p"))
	if n := server.Len(t, "orders"); n != 0 {
		t.Errorf("database 0 has %d entries", n)
	}
	server.Do(t, "swapdb", 0, 3)
	if n := server.Len(t, "orders"); n != 1 {
		t.Errorf("database 3 has %d entries", n)
	}
}
