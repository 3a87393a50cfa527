package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// A transaction has at most so many entries, and so many bytes unless it is one entry: the server does nothing else while
// it executes them, and keeps them in memory until then.
const (
	maxRows  = 1000
	maxBytes = 4 << 20
)

// maxRedirections is how often a stream may turn out to be elsewhere within one call.
const maxRedirections = 5

// publication is one call of Publish. It plans what may be sent now, sends it, judges the answers, and plans again, until
// every event has its result. One goroutine owns it; an exchange under way has what it needs for itself.
type publication struct {
	sink    *Sink
	link    *link
	entries []entry
	results []error
	settled []bool

	// blocked are the keys of which an event failed and is to be tried again later, with the result of those behind it.
	blocked map[keyID]error
	// broken are the groups that can't be written now, with their result.
	broken map[string]error
	// routes are where redirections sent the streams.
	routes       map[string]route
	redirections int
}

// keyID names a key that has an order.
type keyID struct {
	table int32
	key   string
}

// route is another server than the one that should have a stream.
type route struct {
	addr   string
	asking bool
}

func newPublication(s *Sink, events []*event.Event) *publication {
	p := &publication{sink: s, entries: newEntries(events), results: make([]error, len(events)), settled: make([]bool, len(events))}
	for i := range p.entries {
		switch size := p.entries[i].size(); {
		case p.entries[i].Topic == "":
			p.settle(i, &event.Error{Class: event.Permanent, Reason: "invalid_topic", Err: errNoTopic})
		case size > s.config.MaxMessageBytes:
			p.settle(i, &event.Error{Class: event.Permanent, Reason: "message_too_large",
				Err: fmt.Errorf("%d bytes are more than sink.redis.max_message_bytes (%d)", size, s.config.MaxMessageBytes)})
		}
	}
	return p
}

// run gives every event a result, or ends with the error that stands for all that have none.
func (p *publication) run(ctx context.Context, l *link) error {
	p.link = l
	for {
		planned := p.plan()
		if len(planned) == 0 {
			return nil
		}
		exchanges, err := p.address(ctx, planned)
		if err == nil {
			err = p.send(ctx, exchanges)
		}
		if err != nil {
			return err
		}
	}
}

// group is the transaction that an entry belongs to: a Cluster's servers take one slot at a time.
func (p *publication) group(e *entry) string {
	if p.link.cluster == nil {
		return ""
	}
	return e.Topic
}

// plan says which entries may be sent now, in which transactions. No key is in two of them.
func (p *publication) plan() []*transaction {
	var planned []*transaction
	groups := map[string]*transaction{}
	var of map[keyID]string // the group of each key
	if p.link.cluster != nil {
		of = map[keyID]string{}
	}
	rows, bytes := 0, 0
	for i := range p.entries {
		if p.settled[i] {
			continue
		}
		e := &p.entries[i]
		key, ordered := p.keyOf(e)
		group := p.group(e)
		if p.settleBehind(i, key, ordered, group) {
			continue
		}
		if of != nil && ordered {
			if other, ok := of[key]; ok && other != group {
				of[key] = "" // no stream: the rest of the key waits for the next round
				continue
			}
			of[key] = group
		}
		if rows, bytes = rows+1, bytes+e.size(); rows > maxRows || rows > 1 && bytes > maxBytes {
			break
		}
		t := groups[group]
		if t == nil {
			t = &transaction{group: group, asking: p.routes[group].asking}
			groups[group] = t
			planned = append(planned, t)
		}
		t.indexes = append(t.indexes, i)
	}
	return planned
}

// settleBehind settles an entry that can't be sent because of what failed before.
func (p *publication) settleBehind(i int, key keyID, ordered bool, group string) bool {
	if behind := p.blocked[key]; ordered && behind != nil {
		p.settle(i, behind)
		return true
	}
	if cause := p.broken[group]; cause != nil {
		p.settle(i, cause)
		p.block(&p.entries[i], cause)
		return true
	}
	return false
}

// address finds the servers of the transactions: one exchange for each server.
func (p *publication) address(ctx context.Context, planned []*transaction) ([]*exchange, error) {
	owners := make([]*server, len(planned))
	find := func() (err error) {
		for n, t := range planned {
			if r, ok := p.routes[t.group]; ok && p.link.cluster != nil {
				owners[n], err = p.link.at(ctx, r.addr)
			} else {
				owners[n], err = p.link.owner(ctx, t.group)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if p.link.cluster == nil {
		err = find()
	} else {
		err = p.sink.await(ctx, find) // it may have to ask the nodes
	}
	if err != nil {
		p.lost(ctx, err, planned[0])
		return nil, err
	}
	var exchanges []*exchange
	of := map[*server]*exchange{}
	for n, t := range planned {
		x := of[owners[n]]
		if x == nil {
			x = &exchange{server: owners[n], idempotent: *p.sink.config.Idempotent && !p.sink.noIDMP.Load()}
			of[owners[n]] = x
			exchanges = append(exchanges, x)
		}
		x.transactions = append(x.transactions, t)
	}
	return exchanges, nil
}

// send runs the exchanges at once and judges each when it is back.
func (p *publication) send(ctx context.Context, exchanges []*exchange) error {
	done := make(chan *exchange, len(exchanges))
	for _, x := range exchanges {
		if !p.sink.spawn(func() {
			x.run(ctx, &p.sink.config, p.entries)
			done <- x
		}) {
			return errClosed
		}
	}
	for range exchanges {
		select {
		case x := <-done:
			if err := p.apply(ctx, x); err != nil {
				return err
			}
		case <-ctx.Done():
			p.lost(ctx, context.Cause(ctx), exchanges[0].transactions[0])
			return context.Cause(ctx)
		}
	}
	return nil
}

// conclude gives an event its result, and holds back what is behind it where it is to be tried again.
func (p *publication) conclude(i int, result error) {
	p.settle(i, result)
	if result == nil {
		return
	}
	switch event.ClassOf(result) {
	case event.Retryable:
		p.block(&p.entries[i], event.ErrNotAttempted)
	case event.Unavailable:
		p.block(&p.entries[i], result)
	}
}

// noteWritten remembers a stream that the relay's user may write to.
func (p *publication) noteWritten(t *transaction) {
	for pos, i := range t.indexes {
		if topic := p.entries[i].Topic; t.errs[pos] == nil {
			if last := p.sink.written.Load(); last == nil || *last != topic {
				topic = strings.Clone(topic) // not the memory of the whole batch
				p.sink.written.Store(&topic)
			}
			return
		}
	}
}

func (p *publication) settle(i int, result error) { p.settled[i], p.results[i] = true, result }

func (p *publication) keyOf(e *entry) (key keyID, ordered bool) {
	if !p.sink.config.Ordered || !e.HasKey {
		return keyID{}, false
	}
	return keyID{e.ID.Table, e.Key}, true
}

// block holds back the further events of e's key; behind is their result.
func (p *publication) block(e *entry, behind error) {
	key, ordered := p.keyOf(e)
	if !ordered || p.blocked[key] != nil {
		return
	}
	if p.blocked == nil {
		p.blocked = map[keyID]error{}
	}
	p.blocked[key] = behind
}

// abandon gives all events without a result the error that ended the publication.
func (p *publication) abandon(err error) {
	var result *event.Error
	if !errors.As(err, &result) {
		v := classify(err)
		v.class = event.Unavailable // whatever it is, it isn't about the event
		result = v.wrap(p.sink.config.explain(err))
	}
	for i := range p.entries {
		if !p.settled[i] {
			p.settle(i, result)
		}
	}
}
