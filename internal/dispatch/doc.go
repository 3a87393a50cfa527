// Package dispatch is the only place where the two paths meet: the stream, which is fast, and the poll, which is the
// authority.
//
// The rules by which they meet are one pure state machine (type machine): events, pages, acknowledgements, failures,
// marks and time go in; "send this batch on that lane", "read the next page", "mark these" come out as effects. It does
// no I/O, reads no clock, and one goroutine owns it (Dispatcher.Run), which carries the effects out.
//
// The words: a pass is one sweep of the poller over the PENDING rows, page by page. An id is known while dispatch has it
// queued, sent, acknowledged or failing, or has settled it and somebody could still bring it again. A key is stream-fed,
// or it is poll-fed (parked; and while the mode is not LIVE, every key is): what the stream brings of a poll-fed key goes
// to a bounded buffer, until a pass that began late enough has fed everything before it.
//
// Invariants: what is refused, dropped or thrown out stays PENDING in the table, and the time of the last drop holds the
// hand-over back until a pass that began after it (plus the settle delay) is complete. Keys are handled by a 64-bit hash:
// two keys that collide are only ordered more strictly than they need be.
package dispatch
