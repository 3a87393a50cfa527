package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// errMalformed is wrapped by every error of the decoder that the server's bytes are to blame for.
var errMalformed = errors.New("malformed message")

// The kinds of messages of pgoutput, protocol version 1: "Logical Replication Message Formats" of the documentation.
const (
	kindBegin    = 'B'
	kindCommit   = 'C'
	kindRelation = 'R'
	kindInsert   = 'I'
	kindUpdate   = 'U'
	kindDelete   = 'D'
	kindTruncate = 'T'
	kindType     = 'Y'
	kindOrigin   = 'O'
	kindMessage  = 'M'
)

// postgresEpoch is where the wire's timestamps, in microseconds, begin.
const postgresEpoch = 946684800 * 1_000_000

func wireTime(micros int64) time.Time { return time.UnixMicro(micros + postgresEpoch) }

// reader takes a message apart. After the first read beyond its end, bad is set and everything reads as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) next(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) uint8() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.next(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() string {
	for i, c := range r.b {
		if c == 0 {
			s := string(r.b[:i])
			r.b = r.b[i+1:]
			return s
		}
	}
	r.next(uint64(len(r.b)) + 1) // no end: bad
	return ""
}

// end is an error when anything was missing or is left over.
func (r *reader) end(what string) error {
	switch {
	case r.bad:
		return fmt.Errorf("%w: %s is cut short", errMalformed, what)
	case len(r.b) > 0:
		return fmt.Errorf("%w: %d bytes too many in %s", errMalformed, len(r.b), what)
	}
	return nil
}

type begin struct {
	commitTime time.Time
	xid        uint32
}

func (r *reader) begin() begin {
	r.uint64() // the start of the commit record
	return begin{commitTime: wireTime(int64(r.uint64())), xid: r.uint32()}
}

// commit is the position behind the transaction: what may be confirmed when it has been received.
func (r *reader) commit() pglogrepl.LSN {
	r.uint8()  // flags
	r.uint64() // the start of the commit record
	end := pglogrepl.LSN(r.uint64())
	r.uint64() // the time
	return end
}

func (r *reader) relation() (oid uint32, columns []table.WireColumn) {
	oid = r.uint32()
	r.text()  // the schema
	r.text()  // the name
	r.uint8() // the replica identity
	n := r.uint16()
	for range n {
		if r.bad {
			return oid, nil
		}
		r.uint8() // part of the key?
		columns = append(columns, table.WireColumn{Name: r.text(), OID: r.uint32()})
		r.uint32() // the type's modifier
	}
	return oid, columns
}

// tuple appends the fields to dst. They alias the message.
func (r *reader) tuple(dst []table.Field) []table.Field {
	n := r.uint16()
	for range n {
		kind := r.uint8()
		switch table.FieldFormat(kind) {
		case table.Null:
			dst = append(dst, table.Field{Format: table.Null})
		case table.Text, table.Binary:
			dst = append(dst, table.Field{Format: table.FieldFormat(kind), Data: r.next(uint64(r.uint32()))})
		default:
			r.bad = true // 'u', an unchanged TOAST value, doesn't occur in inserts
		}
		if r.bad {
			return dst
		}
	}
	return dst
}
