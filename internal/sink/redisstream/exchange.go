package redisstream

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

var (
	errReplicas = errors.New("the entries are with the master, but too few replicas have them")
	errIDMP     = errors.New("the server refuses idempotent XADD although its version has it")
	errReplies  = errors.New("the server's answers aren't those of a transaction")
)

// transaction is the entries that are written together or, as far as the server as a whole is concerned, not at all.
type transaction struct {
	group   string // by which publication sorts entries into transactions
	indexes []int  // of the entries in the publication
	asking  bool   // the slot is moving to this server

	// What became of it: failed, or one error (or nil) an entry in errs. refused says that some entries were refused at
	// the door and that nothing was done: those without an error may be tried again.
	failed  error
	refused bool
	errs    []error

	multi  *redis.StatusCmd
	queued []*redis.StatusCmd
	exec   *redis.SliceCmd
}

// exchange is one round trip: transactions of one server, without a key in common.
type exchange struct {
	server       *server
	transactions []*transaction
	idempotent   bool // XADD … IDMP is wanted; after run: was used
}

// run sends the transactions and notes what became of them.
func (x *exchange) run(ctx context.Context, c *Config, entries []entry) {
	if err := x.server.learn(ctx, c); err != nil {
		x.fail(err)
		return
	}
	x.idempotent = x.idempotent && x.server.isIdempotent()
	f := c.form(x.server, x.idempotent)
	pipe := x.server.Pipeline()
	for _, t := range x.transactions {
		t.enqueue(ctx, pipe, f, entries)
	}
	var wait *redis.IntCmd
	if c.WaitReplicas > 0 {
		wait = redis.NewIntCmd(ctx, "wait", c.WaitReplicas, max(1, c.WaitTimeout.Milliseconds()))
		_ = pipe.Process(ctx, wait)
	}
	// Each command has its own error; but when the connection can't be made because the server refuses it, go-redis leaves
	// them without one.
	_, sent := pipe.Exec(ctx)
	for _, t := range x.transactions {
		t.judge(sent)
		if wait != nil && t.failed == nil && !t.refused {
			if err := wait.Err(); err != nil {
				t.failed = err
			} else if wait.Val() < int64(c.WaitReplicas) {
				t.failed = errReplicas
			}
		}
	}
}

func (x *exchange) fail(err error) {
	for _, t := range x.transactions {
		t.failed = err
	}
}

// form is that of the entries for a server. What can't be known yet (its clock) is left out.
func (c *Config) form(s *server, idempotent bool) *form {
	f := &form{operator: "~"}
	if idempotent {
		f.producer = clientName
	}
	if c.TrimExact {
		f.operator = "="
	}
	switch oldest := s.oldest(c.MaxAge); {
	case c.MaxLen > 0:
		f.trim, f.limit = "maxlen", c.MaxLen
	case oldest != "":
		f.trim, f.limit = "minid", oldest
	}
	return f
}

// enqueue adds the commands to the pipeline.
func (t *transaction) enqueue(ctx context.Context, pipe redis.Pipeliner, f *form, entries []entry) {
	if t.asking {
		_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking")) // holds for the whole transaction
	}
	t.multi = redis.NewStatusCmd(ctx, "multi")
	_ = pipe.Process(ctx, t.multi)
	t.queued = make([]*redis.StatusCmd, len(t.indexes))
	args := make([]any, 0, len(t.indexes)*maxArgs)
	for pos, i := range t.indexes {
		start := len(args)
		args = f.appendArgs(args, &entries[i])
		t.queued[pos] = redis.NewStatusCmd(ctx, args[start:len(args):len(args)]...)
		_ = pipe.Process(ctx, t.queued[pos])
	}
	t.exec = redis.NewSliceCmd(ctx, "exec")
	_ = pipe.Process(ctx, t.exec)
}

// judge reads the replies; sent is the pipeline's error. A command that is refused when it is queued makes EXEC do nothing.
func (t *transaction) judge(sent error) {
	if t.failed = unless(t.multi, "OK", sent); t.failed != nil {
		return
	}
	t.errs = make([]error, len(t.indexes))
	for pos, cmd := range t.queued {
		err := unless(cmd, "QUEUED", sent)
		if err == nil {
			continue
		}
		if s := classify(err).scope; s == ofServer || s == elsewhere {
			t.failed = err
			return
		}
		t.errs[pos], t.refused = err, true
	}
	if t.refused {
		return
	}
	if t.failed = t.exec.Err(); t.failed != nil {
		return
	}
	replies := t.exec.Val()
	if len(replies) != len(t.errs) {
		t.failed = errReplies
		return
	}
	for pos, reply := range replies {
		if err, ok := reply.(error); ok {
			t.errs[pos] = err
		}
	}
}

// unless is nil when the server gave this answer, and otherwise why not.
func unless(cmd *redis.StatusCmd, answer string, sent error) error {
	switch {
	case cmd.Err() != nil:
		return cmd.Err()
	case cmd.Val() == answer:
		return nil
	case sent != nil:
		return sent
	default:
		return errReplies
	}
}
