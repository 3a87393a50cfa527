package redisstream

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// apply takes over what became of an exchange.
func (p *publication) apply(ctx context.Context, x *exchange) error {
	for _, t := range x.transactions {
		switch {
		case t.failed != nil:
			p.fail(ctx, t)
		case t.refused:
			if err := p.refused(ctx, x, t); err != nil {
				return err
			}
		default:
			for pos, i := range t.indexes {
				p.conclude(i, p.judge(x, t.errs[pos]))
			}
			p.noteWritten(t)
		}
	}
	return nil
}

// judge is the result for an entry of a transaction that was executed.
func (p *publication) judge(x *exchange, err error) error {
	if err == nil {
		return nil
	}
	v := classify(err)
	if x.idempotent && v.reason == "server_error" {
		// Perhaps the server doesn't know IDMP after all, after a failover to an older one. That isn't the event's fault.
		p.sink.withoutIDMP(err)
		err = fmt.Errorf("%w: %w", errIDMP, err)
		v = classifyLocal(err)
	}
	return v.wrap(err)
}

// fail settles the entries of a transaction that the server, or the way to it, has failed as a whole; or it leaves them
// to be sent to where the server says the stream is.
func (p *publication) fail(ctx context.Context, t *transaction) {
	v := classify(t.failed)
	if v.scope == elsewhere && p.redirect(t) {
		return
	}
	v.class = event.Unavailable // whatever it is, it isn't about an event
	result := v.wrap(p.sink.config.explain(t.failed))
	if p.broken == nil {
		p.broken = map[string]error{}
	}
	p.broken[t.group] = result
	for _, i := range t.indexes {
		p.conclude(i, result)
	}
	p.lost(ctx, t.failed, t)
}

// redirect notes where a stream is.
func (p *publication) redirect(t *transaction) bool {
	addr, asking, ok := redirection(t.failed)
	if p.redirections++; !ok || p.link.cluster == nil || p.redirections > maxRedirections {
		return false
	}
	if p.routes == nil {
		p.routes = map[string]route{}
	}
	p.routes[t.group] = route{addr, asking}
	return true
}

// refused settles the entries that the server refused one by one; the others are sent again without them.
func (p *publication) refused(ctx context.Context, x *exchange, t *transaction) error {
	allowed := false // some XADD was let in, so it is the stream that is forbidden
	for _, err := range t.errs {
		allowed = allowed || err == nil
	}
	for pos, i := range t.indexes {
		err := t.errs[pos]
		if err == nil {
			continue
		}
		v := classify(err)
		if v.reason == "not_permitted" && !allowed {
			if allowed = p.mayWriteElsewhere(ctx, p.entries[i].Topic); !allowed {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				t.failed = fmt.Errorf("%w: no stream is known that it may write to", err)
				p.fail(ctx, t)
				return nil
			}
		}
		p.conclude(i, p.judge(x, err))
	}
	return nil
}

// mayWriteElsewhere says whether the relay's user may XADD to another stream, one that it has written to. Redis has one
// code for a user who may not write to this stream, which is permanent for its events, and one who may not XADD at
// all, perhaps because of a slip in his rules: then no event is to blame.
func (p *publication) mayWriteElsewhere(ctx context.Context, forbidden string) bool {
	stream := p.sink.written.Load()
	if stream == nil || *stream == forbidden {
		return false
	}
	l, err := p.sink.another()
	if err != nil {
		return false
	}
	defer p.sink.drop(l)
	return p.sink.await(ctx, func() error {
		owner, err := l.owner(ctx, *stream)
		if err != nil {
			return err
		}
		return tryWrite(ctx, owner, *stream)
	}) == nil
}

// lost tells the sink that nothing can be written, unless it was only this call that ended.
func (p *publication) lost(ctx context.Context, err error, t *transaction) {
	if ctx.Err() == nil || context.Cause(ctx) == errPublishBound { //nolint:errorlint // it is what was given to the context
		p.sink.lost(err, p.entries[t.indexes[0]].Topic)
	}
}
