package lifecycle

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// maxMemory bounds the rows that are remembered; more failing rows than that begin anew.
const maxMemory = 100_000

// memory keeps the attempts and the next attempt of failing rows whose table has no column for them. It is lost with the
// process: such rows begin anew then.
type memory struct {
	mu   sync.Mutex
	rows map[event.RowID]memo
}

type memo struct {
	attempts int
	due      time.Time
}

func newMemory() *memory { return &memory{rows: map[event.RowID]memo{}} }

func (m *memory) attempts(id event.RowID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows[id].attempts
}

func (m *memory) dueIn(id event.RowID) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.rows[id]; ok {
		return time.Until(row.due)
	}
	return 0
}

func (m *memory) put(id event.RowID, attempts int, pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.rows[id]; !ok && len(m.rows) >= maxMemory {
		for other := range m.rows { // any will do
			delete(m.rows, other)
			break
		}
	}
	m.rows[id] = memo{attempts, time.Now().Add(pause)}
}

func (m *memory) forget(id event.RowID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, id)
}
