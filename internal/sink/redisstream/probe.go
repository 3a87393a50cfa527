package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// probeStream is what a Probe tries to write to before anything was written. Nothing is ever written to it.
const probeStream = "cdc-relay:probe"

// replicaLag is how old a replica's last word may be, in seconds, for it to be waited for: they speak every second.
const replicaLag = 1

// Probe makes the server look at a write, without doing it, over connections of its own. After an outage it is one to the
// stream that couldn't be written to, and the next Publish uses the connections.
func (s *Sink) Probe(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx, 2*s.config.Timeout+s.config.waitTimeout(), errProbeBound)
	defer cancel()
	err := context.Cause(ctx)
	if err == nil {
		err = s.probe(ctx)
	}
	if err != nil {
		v := classify(err)
		v.class = event.Unavailable
		return v.wrap(fmt.Errorf("reach redis: %w", s.config.explain(err)))
	}
	return nil
}

func (s *Sink) probe(ctx context.Context) error {
	stream := probeStream
	if last := s.written.Load(); last != nil {
		stream = *last
	}
	s.mu.Lock()
	if s.down != nil {
		stream = s.suspect
	}
	s.mu.Unlock()
	l, err := s.another()
	if err != nil {
		return err
	}
	err = s.await(ctx, func() error { return s.ready(ctx, l, stream) })
	if err != nil || !s.found(l) {
		s.drop(l)
	}
	return err
}

// ready returns nil when the server of a stream takes writes. That the relay's user may not write to this stream, or that
// it is moving to another node, says nothing against the server.
func (s *Sink) ready(ctx context.Context, l *link, stream string) error {
	owner, err := l.owner(ctx, stream)
	if err != nil {
		return err
	}
	if err := tryWrite(ctx, owner, stream); err != nil {
		if v := classify(err); errors.Is(err, errTransaction) || v.scope != elsewhere && v.reason != "not_permitted" {
			return err
		}
	}
	return s.replicasReady(ctx, owner)
}

// replicasReady returns nil when as many replicas as are waited for follow the master. Otherwise each try would leave its
// entries with the master once more.
func (s *Sink) replicasReady(ctx context.Context, owner *server) error {
	if s.config.WaitReplicas == 0 {
		return nil
	}
	if err := owner.Do(ctx, "wait", 0, 1).Err(); err != nil {
		return fmt.Errorf("wait for replicas: %w", err)
	}
	info, err := owner.Info(ctx, "replication").Result()
	if err != nil {
		return ignoreServer(err) // it may not ask
	}
	if n := followers(info); n < s.config.WaitReplicas {
		return fmt.Errorf("%w: %d of %d follow", errReplicas, n, s.config.WaitReplicas)
	}
	return nil
}

// followers counts the replicas in INFO that were heard of a moment ago.
func followers(info string) (n int) {
	for i := range 1000 {
		replica := infoValue(info, "slave"+strconv.Itoa(i))
		if replica == "" {
			return n
		}
		fields := map[string]string{}
		for field := range strings.SplitSeq(replica, ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		if lag, err := strconv.Atoi(fields["lag"]); err == nil && lag <= replicaLag && fields["state"] == "online" {
			n++
		}
	}
	return n
}
