package dispatch

import "github.com/cdc-relay/cdc-relay/internal/event"

// buffer keeps what the stream brings of poll-fed keys, in stream order, bounded in rows and bytes. An event that a pass
// feeds meanwhile is taken out, so that what is left at the hand-over was not sent since it came.
type buffer struct {
	maxRows, maxBytes int

	events []*event.Event // nil where one was taken out
	head   int
	at     map[event.RowID]int // position in events
	bytes  int
}

func newBuffer(maxRows, maxBytes int) *buffer {
	return &buffer{maxRows: maxRows, maxBytes: maxBytes, at: map[event.RowID]int{}}
}

func (b *buffer) len() int { return len(b.at) }

// add appends an event and returns what had to be dropped for it, the oldest first.
func (b *buffer) add(e *event.Event) (dropped []*event.Event) {
	if _, ok := b.at[e.ID]; ok {
		return nil
	}
	b.compact()
	b.at[e.ID] = len(b.events)
	b.events = append(b.events, e)
	b.bytes += e.Size()
	for len(b.at) > 1 && (len(b.at) > b.maxRows || b.bytes > b.maxBytes) {
		old := b.events[b.head]
		b.head++
		if old != nil {
			b.forget(old)
			dropped = append(dropped, old)
		}
	}
	return dropped
}

// remove takes an event out that reached dispatch on the other path.
func (b *buffer) remove(id event.RowID) {
	if i, ok := b.at[id]; ok {
		b.forget(b.events[i])
		b.events[i] = nil
	}
}

func (b *buffer) forget(e *event.Event) {
	delete(b.at, e.ID)
	b.bytes -= e.Size()
}

// take empties the buffer and returns what was in it, in order.
func (b *buffer) take() []*event.Event {
	all := b.list()
	b.reset()
	return all
}

func (b *buffer) list() []*event.Event {
	all := make([]*event.Event, 0, len(b.at))
	for _, e := range b.events[b.head:] {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

func (b *buffer) reset() {
	b.events, b.head, b.bytes = nil, 0, 0
	clear(b.at)
}

// compact closes the gaps once they outnumber the events, so that the slice stays as bounded as the events are.
func (b *buffer) compact() {
	if len(b.events) < 2*len(b.at)+1024 {
		return
	}
	kept := b.list()
	b.events, b.head = kept, 0
	for i, e := range kept {
		b.at[e.ID] = i
	}
}
