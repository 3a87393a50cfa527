package dispatch

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// phase is where a known row stands.
type phase uint8

const (
	queued  phase = iota // in a lane or in the sink's hands
	acked                // acknowledged, its mark not yet committed
	failing              // failed, its failure not yet written down
	waiting              // its failure is written down; known until no page can show it as it was before
	settled              // written down; known until nobody can bring it again
)

// entry is what dispatch knows of a row.
type entry struct {
	key   key
	phase phase
	// wal is a position that the stream must have passed before it can't bring the row any more; 0 when it came by the
	// stream.
	wal pglogrepl.LSN
}

// settledRow waits in the order of settlement for the time when it can be forgotten.
type settledRow struct {
	id   event.RowID
	read uint64 // the last read that was asked for before the settlement was known
	wal  pglogrepl.LSN
}

// settle keeps the row known: a page read before the mark may still bring it as it was, and so may the stream.
func (m *machine) settle(id event.RowID, e entry, as phase) {
	e.phase = as
	m.known[id] = e
	m.settledRows = append(m.settledRows, settledRow{id, m.readSeq, e.wal})
}

// crowded reports that so many settled rows are known that the poll has to wait until some can be forgotten: what is known
// would grow with the backlog, while a stream that has much to skip is far behind, or a pass is long.
func (m *machine) crowded() bool { return len(m.settledRows) > 5*m.limits.rows }

// forget drops settled rows that nobody can bring again: no read from before the settlement is in use, and the stream has
// passed the row's commit. (A stream that is not connected will start later than any of them.)
func (m *machine) forget() {
	n := 0
	for _, r := range m.settledRows {
		if m.inUse(r.read) || m.stream.phase != streamDown && m.stream.pos < r.wal {
			break
		}
		delete(m.known, r.id)
		n++
	}
	m.settledRows = m.settledRows[n:]
	// While a backlog drains, nothing that the stream brings says where it is; ask, or what is known grows with the backlog.
	if len(m.settledRows) > m.limits.rows && m.stream.phase == streamUp && m.now.Sub(m.askedAt) >= askPause {
		m.askedAt = m.now
		m.fx.askPosition = true
	}
}

// askPause is the least time between two questions for the stream's position while many settled rows wait for it.
const askPause = 100 * time.Millisecond
