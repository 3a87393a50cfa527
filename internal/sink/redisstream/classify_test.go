package redisstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// reply is an error that a server replied with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

var _ redis.Error = reply("")

func TestEveryErrorReplyHasItsClassReasonAndScope(t *testing.T) {
	for text, want := range map[string]verdict{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                   {event.Permanent, "wrong_type", ofStream},
		"NOPERM No permissions to access a key":                                                               {event.Permanent, "not_permitted", ofStream},
		"OOM command not allowed when used memory > 'maxmemory'.":                                             {event.Unavailable, "out_of_memory", ofServer},
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":    {event.Unavailable, "persistence_failing", ofServer},
		"READONLY You can't write against a read only replica.":                                               {event.Unavailable, "read_only", ofServer},
		"REDIRECT 127.0.0.1:6380":                                                                             {event.Unavailable, "read_only", ofServer},
		"LOADING Redis is loading the dataset in memory":                                                      {event.Unavailable, "loading", ofServer},
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                    {event.Unavailable, "master_down", ofServer},
		"NOREPLICAS Not enough good replicas to write.":                                                       {event.Unavailable, "not_enough_replicas", ofServer},
		"CLUSTERDOWN The cluster is down":                                                                     {event.Unavailable, "cluster_down", ofServer},
		"CLUSTERDOWN Hash slot not served":                                                                    {event.Unavailable, "cluster_down", ofServer},
		"TRYAGAIN Multiple keys request during rehashing of slot":                                             {event.Unavailable, "slot_moving", ofServer},
		"MOVED 3999 127.0.0.1:6381":                                                                           {event.Unavailable, "slot_moved", elsewhere},
		"ASK 3999 127.0.0.1:6381":                                                                             {event.Unavailable, "slot_moved", elsewhere},
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":              {event.Unavailable, "busy", ofServer},
		"NOAUTH Authentication required.":                                                                     {event.Unavailable, "authentication_failed", ofServer},
		"WRONGPASS invalid username-password pair or user is disabled.":                                       {event.Unavailable, "authentication_failed", ofServer},
		"DENIED Redis is running in protected mode":                                                           {event.Unavailable, "authentication_failed", ofServer},
		"EXECABORT Transaction discarded because of previous errors.":                                         {event.Unavailable, "transaction_aborted", ofServer},
		"EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.": {event.Unavailable, "out_of_memory", ofServer},
		"EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write.":           {event.Unavailable, "not_enough_replicas", ofServer},
		"EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the 'exec'":   {event.Unavailable, "not_permitted", ofStream},
		"EXECABORT Transaction discarded because of: ERR something":                                           {event.Unavailable, "transaction_aborted", ofServer},
		"ERR The stream has exhausted the last possible ID, unable to add more items":                         {event.Retryable, "server_error", ofEntry},
		"ERR unknown command 'XADD'":                                                                          {event.Retryable, "server_error", ofEntry},
		"SOMETHING that a later version says":                                                                 {event.Retryable, "server_error", ofEntry},
		"":                                                                                                    {event.Unavailable, "connection_lost", ofServer}, // no answer at all
		"ERR Error running script: OOM isn't this error's code":                                               {event.Retryable, "server_error", ofEntry},
	} {
		for _, err := range []error{reply(text), fmt.Errorf("failed to authenticate: %w", reply(text))} {
			if got := classify(err); got != want {
				t.Errorf("%q: %+v, want %+v", text, got, want)
			}
		}
	}
	for code, v := range codes {
		if v.reason == "" || strings.Trim(v.reason, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%s: the reason %q is no label", code, v.reason)
		}
	}
}

func TestWhatDidNotComeFromAServerIsNeverAboutAnEvent(t *testing.T) {
	for _, test := range []struct {
		err    error
		reason string
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "connection_lost"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "connection_lost"},
		{&net.DNSError{Err: "no such host", Name: "redis"}, "connection_lost"},
		{io.EOF, "connection_lost"},
		{errors.New("redis: all sentinels specified in configuration are unreachable"), "connection_lost"},
		{redis.Nil, "connection_lost"},
		{os.ErrDeadlineExceeded, "timed_out"},
		{context.Canceled, "timed_out"},
		{context.DeadlineExceeded, "timed_out"},
		{errPublishBound, "timed_out"},
		{errProbeBound, "timed_out"},
		{redis.ErrPoolTimeout, "connections_exhausted"},
		{redis.ErrPoolExhausted, "connections_exhausted"},
		{redis.ErrClosed, "sink_closed"},
		{errClosed, "sink_closed"},
		{errReplicas, "not_enough_replicas"},
		{errIDMP, "idempotence_refused"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls_failed"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "tls_failed"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "tls_failed"},
	} {
		for _, err := range []error{test.err, fmt.Errorf("with a prefix: %w", test.err)} {
			if got := classify(err); got != (verdict{event.Unavailable, test.reason, ofServer}) {
				t.Errorf("%v: %+v, want %s", err, got, test.reason)
			}
		}
	}
}

func TestARedirectionNamesAnAddress(t *testing.T) {
	for text, want := range map[string]struct {
		addr       string
		asking, ok bool
	}{
		"MOVED 3999 127.0.0.1:6381": {"127.0.0.1:6381", false, true},
		"ASK 3999 redis-3:6381":     {"redis-3:6381", true, true},
		"MOVED 3999 :6381":          {":6381", false, false},
		"OOM no":                    {"", false, false},
	} {
		addr, asking, ok := redirection(reply(text))
		if addr != want.addr || asking != want.asking || ok != want.ok {
			t.Errorf("%q: %q, %v, %v", text, addr, asking, ok)
		}
	}
}

func TestEveryReasonIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/sinks/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := []string{"message_too_large", "invalid_topic", "timed_out", "connection_lost", "tls_failed", "connections_exhausted", "idempotence_refused"}
	for code, v := range codes {
		reasons = append(reasons, v.reason)
		if !strings.Contains(string(page), "`"+code) {
			t.Errorf("the docs don't have the code %s", code)
		}
	}
	for _, r := range reasons {
		if !strings.Contains(string(page), "`"+r+"`") {
			t.Errorf("the docs don't have the reason %s", r)
		}
	}
}
