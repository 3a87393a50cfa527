package replication

import (
	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Receiver takes what the stream brings. All methods are called from the one goroutine that owns the connection, in
// order, and must not block beyond a moment: while they do, the server gets no sign of life.
//
// Each Connecting is followed by exactly one Lost, with or without Started in between; Offer and Passed come only
// between Started and Lost.
type Receiver interface {
	// Connecting is called before the start position is read; it returns when that is noted.
	Connecting()
	// Started says that the stream is on: what commits at start or later will be offered.
	Started(start pglogrepl.LSN)
	// Offer brings a committed PENDING row, in commit order. The event is the receiver's.
	Offer(e *event.Event)
	// Passed says that everything committed between the start and pos has been offered.
	Passed(pos pglogrepl.LSN)
	// Lost says that the stream has ended, and why. Run goes on trying to get it back unless it was told to stop.
	Lost(err error)
}
