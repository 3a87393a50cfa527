package dispatch

import "github.com/cdc-relay/cdc-relay/internal/event"

// key is the hash of what keeps order: table and key, or the row alone where nothing orders it.
type key uint64

// keyOf hashes by FNV-1a with a finalizer that spreads short keys over the lanes. It is the same in every process, so
// that a failing test can be replayed.
func keyOf(e *event.Event, ordered bool) key {
	if !ordered || !e.HasKey {
		return key(mix(e.ID.Hi ^ mix(e.ID.Lo) ^ uint64(e.ID.Table)<<32))
	}
	h := uint64(14695981039346656037) ^ uint64(e.ID.Table)
	for i := range len(e.Key) {
		h = (h ^ uint64(e.Key[i])) * 1099511628211
	}
	return key(mix(h))
}

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
