package dispatch

import "sync"

// mailbox takes values from any goroutine without blocking, in order, and gives them all at once to the one that owns it.
// It is bounded by what its senders can have under way.
type mailbox[T any] struct {
	mu     sync.Mutex
	values []T
	spare  []T
	signal chan struct{} // holds a token while values may be waiting
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{signal: make(chan struct{}, 1)} }

func (b *mailbox[T]) put(values ...T) {
	b.mu.Lock()
	b.values = append(b.values, values...)
	b.mu.Unlock()
	b.notify()
}

func (b *mailbox[T]) notify() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// take returns what came since the last call; the slice is valid until the call after the next.
func (b *mailbox[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.values
	clear(b.spare)
	b.values, b.spare = b.spare[:0], got
	return got
}
