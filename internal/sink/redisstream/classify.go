package redisstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// scope is what an error says something about.
type scope uint8

const (
	// ofEntry: this entry.
	ofEntry scope = iota
	// ofStream: every entry of the stream.
	ofStream
	// ofServer: nothing can be written, by this connection or at all.
	ofServer
	// elsewhere: the stream is another server's.
	elsewhere
)

// verdict is what an error means.
type verdict struct {
	class  event.Class
	reason string
	scope  scope
}

func (v verdict) wrap(err error) *event.Error {
	return &event.Error{Class: v.class, Reason: v.reason, Err: err}
}

// codes are the first words of a server's error replies.
var codes = map[string]verdict{
	// The key holds something else than a stream: for as long as nobody deletes that.
	"WRONGTYPE": {event.Permanent, "wrong_type", ofStream},
	// The relay's user may not write there. Redis has the same code for a user who may not XADD at all: see forbidden.
	"NOPERM": {event.Permanent, "not_permitted", ofStream},

	// maxmemory is reached and nothing may be evicted: until a consumer or an operator makes room.
	"OOM": {event.Unavailable, "out_of_memory", ofServer},
	// The last snapshot or append failed (a full disk), and stop-writes-on-bgsave-error holds.
	"MISCONF": {event.Unavailable, "persistence_failing", ofServer},
	// A replica, perhaps the master of a moment ago: a failover.
	"READONLY": {event.Unavailable, "read_only", ofServer},
	// The same, as Valkey says it to those who can be sent elsewhere.
	"REDIRECT": {event.Unavailable, "read_only", ofServer},
	// It reads its data after a start.
	"LOADING": {event.Unavailable, "loading", ofServer},
	// A replica without its master.
	"MASTERDOWN": {event.Unavailable, "master_down", ofServer},
	// Fewer replicas than min-replicas-to-write.
	"NOREPLICAS": {event.Unavailable, "not_enough_replicas", ofServer},
	// Some slots have no node, or this node is alone.
	"CLUSTERDOWN": {event.Unavailable, "cluster_down", ofServer},
	// The slot is between two nodes.
	"TRYAGAIN": {event.Unavailable, "slot_moving", ofServer},
	"MOVED":    {event.Unavailable, "slot_moved", elsewhere},
	"ASK":      {event.Unavailable, "slot_moved", elsewhere},
	// A script has run for too long.
	"BUSY": {event.Unavailable, "busy", ofServer},
	// Who the relay is: the operator's to mend, the events' least of all.
	"NOAUTH":    {event.Unavailable, "authentication_failed", ofServer},
	"WRONGPASS": {event.Unavailable, "authentication_failed", ofServer},
	// Protected mode: no password is set and the relay comes from elsewhere.
	"DENIED": {event.Unavailable, "authentication_failed", ofServer},
	// Nothing of the transaction was done; the cause is told before it or within it.
	"EXECABORT": {event.Unavailable, "transaction_aborted", ofServer},
	// Whatever else Redis has no code for (ids exhausted, a syntax it doesn't know). Not for ever: somebody may upgrade.
	"ERR": {event.Retryable, "server_error", ofEntry},
}

// abortedBecause is what stands before the reason for which Redis refuses EXEC itself: another error with its own code.
const abortedBecause = "Transaction discarded because of: "

// classify judges an error: a reply of the server by its code, and otherwise one of the way to it.
func classify(err error) verdict {
	code := serverCode(err)
	if code == "" {
		return classifyLocal(err)
	}
	if code == "EXECABORT" {
		if _, cause, ok := strings.Cut(err.Error(), abortedBecause); ok {
			if v, known := codes[firstWord(cause)]; known && v.scope != ofEntry {
				v.class = event.Unavailable // it was about EXEC, not about one entry
				return v
			}
		}
	}
	if v, ok := codes[code]; ok {
		return v
	}
	return verdict{event.Retryable, "server_error", ofEntry} // the contract: unknown is retryable
}

// serverCode is the first word of an error that a server replied with, "" for every other error.
func serverCode(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return ""
	}
	return firstWord(reply.Error())
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// classifyLocal judges what didn't come from a server. None of it says anything about an event.
func classifyLocal(err error) verdict {
	unavailable := func(reason string) verdict { return verdict{event.Unavailable, reason, ofServer} }
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	var netErr net.Error
	switch {
	case errors.Is(err, errClosed), errors.Is(err, redis.ErrClosed):
		return unavailable("sink_closed")
	case errors.Is(err, errReplicas):
		return unavailable("not_enough_replicas")
	case errors.Is(err, errIDMP):
		return unavailable("idempotence_refused")
	case errors.As(err, &certificate), errors.As(err, &header), errors.As(err, &alert):
		return unavailable("tls_failed")
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return unavailable("connections_exhausted")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errPublishBound),
		errors.Is(err, errProbeBound), errors.As(err, &netErr) && netErr.Timeout():
		return unavailable("timed_out")
	default:
		return unavailable("connection_lost")
	}
}
