package dispatch

import (
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// item is an event with the hash of its key.
type item struct {
	*event.Event
	key key
}

// lane sends one batch at a time, so that the events of a key stay in order.
type lane struct {
	queue  []item
	held   []item // taken back from an absent sink; goes first
	flight []item
}

func (l *lane) busy() bool { return l.flight != nil }

// offer takes an event into its lane; false: there is no room, and nothing has changed.
func (m *machine) offer(it item, wal pglogrepl.LSN) bool {
	size := it.Size()
	if m.rows >= m.limits.rows || m.bytes > 0 && m.bytes+size > m.limits.bytes {
		return false
	}
	n := int(uint64(it.key) % uint64(len(m.lanes)))
	l := &m.lanes[n]
	if len(l.queue) >= m.limits.laneRows {
		return false
	}
	l.queue = append(l.queue, it)
	m.known[it.ID] = entry{key: it.key, phase: queued, wal: wal}
	if m.rows == 0 {
		m.progress = m.now
	}
	m.rows++
	m.bytes += size
	m.buffer.remove(it.ID)
	m.touch(n)
	return true
}

// touch notes that a lane may have something to send.
func (m *machine) touch(n int) {
	if !m.touched[n] {
		m.touched[n] = true
		m.ready = append(m.ready, n)
	}
}

// pump starts every lane that has something to send and nothing in flight.
func (m *machine) pump() {
	if !m.sinkUp {
		return
	}
	waiting := m.ready[:0]
	for _, n := range m.ready {
		m.touched[n] = false
		l := &m.lanes[n]
		if l.busy() || len(l.held)+len(l.queue) == 0 {
			continue
		}
		allowed := m.ramp.allow(m.now, m.limits.batch)
		if allowed == 0 {
			m.touched[n] = true
			waiting = append(waiting, n)
			continue
		}
		l.flight = l.next(allowed, m.limits.batchBytes)
		m.ramp.spend(len(l.flight))
		m.fx.send = append(m.fx.send, sending{lane: n, items: l.flight})
	}
	m.ready = waiting
}

// next takes the lane's next batch: what was held first, then what waits. It ends before an event whose key is in it with
// another topic: a broker takes topics independently of one another, so that the later event could be published first, or
// although the earlier one fails.
func (l *lane) next(maxRows, maxBytes int) []item {
	from := &l.queue
	if len(l.held) > 0 {
		from = &l.held
	}
	n, bytes := 0, 0
	var topics topics
	for n < len(*from) && n < maxRows && (n == 0 || bytes+(*from)[n].Size() <= maxBytes) && topics.admit(*from, n) {
		bytes += (*from)[n].Size()
		n++
	}
	batch := slices.Clone((*from)[:n])
	*from = slices.Delete(*from, 0, n)
	return batch
}

// topics are the topic of each key of a batch; nil while all have the same, which costs nothing.
type topics map[key]string

// admit notes the topic of item n; false: its key has another one.
func (t *topics) admit(items []item, n int) bool {
	it := items[n]
	if *t == nil && it.Topic != items[0].Topic {
		*t = topics{}
		for _, before := range items[:n] {
			(*t)[before.key] = before.Topic
		}
	}
	if *t == nil {
		return true
	}
	if topic, ok := (*t)[it.key]; ok && topic != it.Topic {
		return false
	}
	(*t)[it.key] = it.Topic
	return true
}

// drop takes the rows out of dispatch: they stay PENDING, and are neither failed nor settled.
func (m *machine) drop(items []item) {
	for _, it := range items {
		delete(m.known, it.ID)
		m.rows--
		m.bytes -= it.Size()
	}
}

// throwOut drops what waits in the lane of a key behind a failed event of that key.
func (m *machine) throwOut(k key) {
	l := &m.lanes[int(uint64(k)%uint64(len(m.lanes)))]
	l.held = m.dropKey(l.held, k)
	l.queue = m.dropKey(l.queue, k)
}

func (m *machine) dropKey(items []item, k key) (kept []item) {
	kept = items[:0]
	for _, it := range items {
		if it.key == k {
			m.drop([]item{it})
		} else {
			kept = append(kept, it)
		}
	}
	clear(items[len(kept):])
	return kept
}

// laneDone takes the outcome of a lane's batch, one error an event.
func (m *machine) laneDone(n int, errs []error) {
	l := &m.lanes[n]
	batch := l.flight
	l.flight = nil
	m.touch(n)
	var failed, held map[key]bool // keys with a retryable failure, and with an event held back, in this batch
	var back []item
	for i, it := range batch {
		err := errs[i]
		class := event.ClassOf(err)
		switch {
		case err == nil:
			if failed[it.key] || held[it.key] {
				m.fx.inversions++ // the sink could not promise the order: the earlier event will follow
			}
			m.acknowledge(it)
		case failed[it.key]:
			m.drop([]item{it}) // not attempted, whatever the sink says: the pass brings it behind the failed one
		case held[it.key], class == event.Unavailable, class == event.NotAttempted:
			held = with(held, it.key)
			back = append(back, it)
		case class == event.Permanent && !m.limits.blockOnDead:
			m.fail(it, err)
		default:
			failed = with(failed, it.key)
			m.fail(it, err)
			m.park(it.key)
		}
	}
	if len(back) > 0 {
		l.held = append(back, l.held...) // before what the pace of the ramp has left there
		m.sinkLost()
	}
}

func with(set map[key]bool, k key) map[key]bool {
	if set == nil {
		set = map[key]bool{}
	}
	set[k] = true
	return set
}

func (m *machine) acknowledge(it item) {
	e := m.known[it.ID]
	e.phase = acked
	m.known[it.ID] = e
	m.bytes -= it.Size()
	m.fx.mark = append(m.fx.mark, it.Event)
}

func (m *machine) fail(it item, err error) {
	e := m.known[it.ID]
	e.phase = failing
	m.known[it.ID] = e
	m.bytes -= it.Size()
	m.failing[it.key]++
	m.fx.fail = append(m.fx.fail, failure{it.Event, err})
}

// settledAs takes what lifecycle has committed in the table.
func (m *machine) settledAs(s event.Settled) {
	e, ok := m.known[s.ID]
	if !ok || e.phase != acked && e.phase != failing {
		return
	}
	m.rows--
	m.progress = m.now
	if e.phase == failing {
		m.written(e.key)
	}
	if s.State != event.Waiting {
		m.settle(s.ID, e, settled)
		return
	}
	m.settle(s.ID, e, waiting)
	m.waitUntil(e.key, m.now.Add(s.DueIn))
}

// sinkLost stops the lanes; each keeps its batch and sends it again when the sink is back.
func (m *machine) sinkLost() {
	if !m.sinkUp {
		return
	}
	m.sinkUp = false
	m.fx.probe = true
	m.abortPass() // its pages grow old while nothing can be sent
}

// sinkBack sends again what was held, and lets the poller bring what was refused, at a pace that grows.
func (m *machine) sinkBack() {
	if m.sinkUp {
		return
	}
	m.sinkUp = true
	m.ramp.start(m.now)
	for n := range m.lanes {
		m.touch(n)
	}
	m.catchUp("the sink is back")
}
