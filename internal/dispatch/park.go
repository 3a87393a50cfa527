package dispatch

import "time"

// parking is a key that only the poll feeds, because an event of it waits.
type parking struct {
	since time.Time // the last time anything of the key was dropped
	due   time.Time // when the waiting event is due, as far as known
}

// park makes a key poll-fed at once, before anything is written down, and keeps a pass under way from feeding what is
// behind the failed event.
func (m *machine) park(k key) {
	if m.pass != nil {
		m.pass.blocked[k] = true
	}
	m.throwOut(k)
	m.want(m.now.Add(m.limits.settle + time.Nanosecond))
	p := m.parked[k]
	if p == nil && len(m.parked) >= m.limits.parked {
		m.crowd()
		return
	}
	if p == nil {
		p = &parking{}
		m.parked[k] = p
	}
	p.since = m.now
}

// crowd is called when one key more waits than may be remembered. Until fewer do, every key is poll-fed: each pass finds
// anew which ones are blocked.
func (m *machine) crowd() {
	m.lastDrop = m.now
	if m.pass != nil {
		m.pass.crowded = true
	}
	if m.mode == Live {
		m.catchUp("too many keys wait for a retry")
	}
}

// written is called when the failure of a row of the key is committed.
func (m *machine) written(k key) {
	if m.failing[k]--; m.failing[k] <= 0 {
		delete(m.failing, k)
	}
	if p := m.parked[k]; p != nil {
		m.want(p.since.Add(m.limits.settle + time.Nanosecond))
	}
}

// waitUntil notes when the poll shall look for the waiting event of a key.
func (m *machine) waitUntil(k key, due time.Time) {
	if p := m.parked[k]; p != nil {
		p.due = due
	}
	m.want(due)
}

// block keeps a pass from feeding a key: an event of it isn't due, or its failure isn't written down.
func (m *machine) block(k key) {
	if m.parked[k] == nil {
		m.park(k)
	}
	if m.pass != nil {
		m.pass.blocked[k] = true
	}
}

// want asks for a pass at t at the latest.
func (m *machine) want(t time.Time) {
	if m.wantPass.IsZero() || t.Before(m.wantPass) {
		m.wantPass = t
	}
}

// unpark makes those keys stream-fed again whose rows the pass has fed up to the buffer.
func (m *machine) unpark(p *pass) {
	for k, pk := range m.parked {
		if !p.blocked[k] && m.failing[k] == 0 && p.began.After(pk.since.Add(m.limits.settle)) {
			delete(m.parked, k)
			continue
		}
		switch due := pk.due; {
		case due.After(p.began): // nothing to be done before
			m.want(due)
		case m.failing[k] > 0: // written will ask
		case p.blocked[k] && !pk.since.After(p.began): // by a DEAD row; until the interval is over
		default:
			m.want(pk.since.Add(m.limits.settle + time.Nanosecond))
		}
	}
}
