package kafka

import (
	"sync"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// outgoing is one message of a round, with the answer to it.
type outgoing struct {
	sarama.ProducerMessage // Metadata is the outgoing itself

	round    *round
	event    *event.Event
	pos      int // in round.out
	answered bool
	err      error
}

// round is what one publication has under way with one producer at a time. A round may be left before all answers are
// there: later ones are dropped.
type round struct {
	out  []outgoing
	done chan struct{} // closed when everything that was sent is answered

	mu       sync.Mutex // guards what follows and answered and err of each
	sent     int
	answers  int
	complete bool // nothing further will be sent
	left     bool
}

// newRound makes the messages of those events that indexes name.
func newRound(events []*event.Event, indexes []int) *round {
	r := &round{out: make([]outgoing, len(indexes)), done: make(chan struct{})}
	n := 0
	for _, i := range indexes {
		n += len(events[i].Headers) + ownHeaders
	}
	headers := make([]sarama.RecordHeader, 0, n)
	var scratch []event.Header
	for pos, i := range indexes {
		o := &r.out[pos]
		o.round, o.event, o.pos = r, events[i], pos
		o.Metadata = o
		headers, scratch = fill(&o.ProducerMessage, events[i], headers, scratch)
	}
	return r
}

// answer notes the outcome of o and says whether a later event of its key is still without one.
func (o *outgoing) answer(err error) (moreOfKey bool) {
	r := o.round
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left || o.answered {
		return false
	}
	o.answered, o.err = true, err
	r.answers++
	r.finish()
	if err == nil || !o.event.HasKey {
		return false
	}
	for i := o.pos + 1; i < r.sent; i++ {
		if later := &r.out[i]; !later.answered && sameKey(o.event, later.event) {
			return true
		}
	}
	return false
}

// finish closes done when nothing is to come. The caller holds mu.
func (r *round) finish() {
	if r.complete && r.answers == r.sent && !r.left {
		r.left = true
		close(r.done)
	}
}

// leave ends the round: afterwards no answer changes it.
func (r *round) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
}

// count notes that one more message is about to be sent, before it can be answered.
func (r *round) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
}

// seal says that nothing further will be sent; unsent takes back the last one that was counted.
func (r *round) seal(unsent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent -= unsent
	r.complete = true
	r.finish()
}
