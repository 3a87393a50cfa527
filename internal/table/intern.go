package table

import "unsafe"

// Bounds of what an interner keeps: an outbox has few topics and types, but nothing makes it so.
const (
	maxInterned       = 1024
	maxInternedLength = 256
)

// interner gives equal strings one copy.
type interner map[string]string

func (in interner) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > maxInternedLength {
		return s
	}
	if len(in) >= maxInterned {
		clear(in)
	}
	in[s] = s
	return s
}

// share makes a string of bytes that nobody will ever change.
func share(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
