package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Check looks at the servers and at the streams known in advance, over connections of its own. It writes nothing.
func (s *Sink) Check(ctx context.Context, topics []string) []preflight.Finding {
	ctx, cancel := s.bounded(ctx, 3*s.config.Timeout, errProbeBound)
	defer cancel()
	c := checker{Sink: s}
	l, err := s.another()
	if err == nil {
		c.link = l
		defer s.drop(l)
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.await(ctx, func() error { return c.run(ctx, topics) })
	}
	if err != nil { // c.findings may still be written to
		remedy := s.config.hint(err)
		if remedy == "" {
			remedy = "look at sink.redis and at the server's log"
		}
		return []preflight.Finding{{Severity: preflight.Failure, Subject: s.place.String(), Detail: fmt.Sprintf("It can't be used: %v.", err), Remedy: remedy}}
	}
	return c.findings
}

// checker is one Check.
type checker struct {
	*Sink
	link *link

	mu       sync.Mutex // a Cluster's nodes are looked at side by side
	findings []preflight.Finding
}

func (c *checker) add(severity preflight.Severity, subject, detail, remedy string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, preflight.Finding{Severity: severity, Subject: subject, Detail: detail, Remedy: remedy})
}

// run ends with an error when the servers can't be reached or take no writes at all.
func (c *checker) run(ctx context.Context, topics []string) error {
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	if cluster := c.link.cluster; cluster != nil {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return c.server(ctx, "redis "+node.Options().Addr, c.link.known(node))
		})
		if err != nil {
			return err
		}
		slices.SortFunc(c.findings, func(a, b preflight.Finding) int { return strings.Compare(a.Subject, b.Subject) })
	} else if err := c.server(ctx, c.place.String(), c.link.known(c.link.single)); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := c.stream(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// server looks at what the server says of itself.
func (c *checker) server(ctx context.Context, subject string, s *server) error {
	if err := s.Ping(ctx).Err(); err != nil {
		return err
	}
	if c.link.cluster == nil { // a Cluster's node takes its own slots only; its streams are looked at
		if err := tryWrite(ctx, s, probeStream); err != nil && (errors.Is(err, errTransaction) || classify(err).reason != "not_permitted") {
			return err
		}
	}
	info := s.Info(ctx).Val() // "" when it may not ask
	if info == "" {
		c.add(preflight.Note, subject, "It answers, and doesn't let the relay's user ask for INFO: its version, memory and replicas are unknown.", "ACL SETUSER <user> +info")
		return nil
	}
	version := infoValue(info, "redis_version")
	if major, _ := versionOf(version); major < 5 {
		c.add(preflight.Failure, subject, fmt.Sprintf("Version %s has no streams.", version), "upgrade to Redis 6.2 or later")
		return nil
	}
	detail := fmt.Sprintf("Version %s answers and takes writes.", version)
	if *c.config.Idempotent && offersIDMP(info) {
		detail += " It drops entries that were sent twice within a moment (IDMP)."
	}
	c.add(preflight.OK, subject, detail, "")
	c.memory(subject, info)
	c.durability(subject, info)
	return c.replicas(ctx, subject, s, info)
}

func (c *checker) memory(subject, info string) {
	policy := infoValue(info, "maxmemory_policy")
	switch limit := infoValue(info, "maxmemory"); {
	case strings.HasPrefix(policy, "allkeys-"):
		c.add(preflight.Warning, subject, fmt.Sprintf("maxmemory-policy is %s: when memory is full, Redis deletes whole streams, read or not.", policy),
			"CONFIG SET maxmemory-policy noeviction, or a server of its own")
	case limit == "0":
		c.add(preflight.Note, subject, "maxmemory isn't set: Redis grows until the operating system kills it, instead of refusing writes while the outbox keeps them.",
			"CONFIG SET maxmemory to what the machine has for it")
	}
}

func (c *checker) durability(subject, info string) {
	if infoValue(info, "aof_enabled") == "0" {
		c.add(preflight.Warning, subject, "It keeps no append-only file: a restart loses what was acknowledged since the last snapshot.",
			"appendonly yes, with appendfsync everysec (a second can be lost) or always (none)")
	}
}

func (c *checker) replicas(ctx context.Context, subject string, s *server, info string) error {
	n := followers(info)
	want := c.config.WaitReplicas
	if want == 0 {
		if n > 0 {
			c.add(preflight.Note, subject, fmt.Sprintf("It has %s, which the relay doesn't wait for: a failover can lose what was acknowledged.", count(n, "replica")),
				"sink.redis.wait_replicas: 1, and min-replicas-to-write 1 on the server")
		}
		return nil
	}
	if err := s.Do(ctx, "wait", 0, 1).Err(); err != nil {
		if serverCode(err) == "" {
			return err
		}
		c.add(preflight.Failure, subject, fmt.Sprintf("The relay's user may not WAIT for replicas: %v.", err), "ACL SETUSER <user> +wait")
		return nil
	}
	if n < want {
		c.add(preflight.Failure, subject, fmt.Sprintf("%s followed a moment ago, sink.redis.wait_replicas is %d: nothing would count as published.", count(n, "replica"), want),
			"start the replicas, or lower sink.redis.wait_replicas")
		return nil
	}
	if infoValue(info, "min_slaves_good_slaves") == "" { // there only when min-replicas-to-write is set
		c.add(preflight.Note, subject, "min-replicas-to-write isn't set: while replicas are missing, entries are written and then don't count, so that they come again later.",
			fmt.Sprintf("CONFIG SET min-replicas-to-write %d", want))
	}
	return nil
}

// stream looks at one stream. Only an error of the way there ends the check.
func (c *checker) stream(ctx context.Context, topic string) error {
	subject := "stream " + topic
	owner, err := c.link.owner(ctx, topic)
	if err != nil {
		return err
	}
	switch err := tryWrite(ctx, owner, topic); {
	case err == nil, classify(err).scope == elsewhere:
	case serverCode(err) == "":
		return err
	case classify(err).reason == "not_permitted":
		c.add(preflight.Failure, subject, "The relay's user may not write to it: its events are DEAD at once.", "ACL SETUSER <user> +xadd ~"+topic)
		return nil
	default:
		c.add(preflight.Failure, subject, fmt.Sprintf("It can't be written to: %v.", err), c.config.hint(err))
		return nil
	}
	kind, err := owner.Type(ctx, topic).Result()
	switch {
	case err != nil && serverCode(err) == "":
		return err
	case err != nil:
		c.add(preflight.OK, subject, "It can be written to.", "") // what it is, the relay's user may not ask
	case kind == "none":
		c.add(preflight.OK, subject, "It doesn't exist yet; the first event makes it.", "")
	case kind != "stream":
		c.add(preflight.Failure, subject, fmt.Sprintf("The key holds a %s, not a stream: its events are DEAD at once.", kind), "rename the key, or another topic")
	default:
		c.growth(ctx, owner, subject, topic)
	}
	return nil
}

// growth tells how long the stream is, and when nothing makes it shorter.
func (c *checker) growth(ctx context.Context, owner *server, subject, topic string) {
	n := owner.XLen(ctx, topic).Val() // 0 when it may not ask
	if c.config.MaxLen == 0 && c.config.MaxAge == 0 {
		c.add(preflight.Note, subject, fmt.Sprintf("It has %s, and the relay trims nothing: it grows until the consumers do (XTRIM, XDEL).", count(int(n), "entry")),
			"sink.redis.max_len or max_age, if entries may go unread")
		return
	}
	c.add(preflight.OK, subject, fmt.Sprintf("It has %s.", count(int(n), "entry")), "")
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what == "entry":
		return fmt.Sprintf("%d entries", n)
	default:
		return fmt.Sprintf("%d %ss", n, what)
	}
}
