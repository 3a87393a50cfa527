// Package replication is the fast path: it owns the logical replication slot, the publication and the one connection on
// which Postgres sends committed outbox rows, and turns pgoutput's messages into events.
//
// Nothing here is a queue that anybody relies on. The row in the table is the truth and the poll is the authority, so
// that three things are right here that would be wrong elsewhere:
//
//   - Every connection starts at the WAL position of its moment and skips the past, which is the poller's.
//   - A position is confirmed as soon as it is received, whatever becomes of the events. So the slot retains next to no
//     WAL, and a shutdown of the server never waits for a broker.
//   - Nothing that fails is fatal. Whatever the reason (no privilege, wal_level, a standby, a lost slot), Run goes on
//     trying, says why in State, and the relay polls meanwhile.
//
// Invariants:
//
//   - One goroutine, that of Run, uses the connection: it receives and it sends. Others only wake it.
//   - A standby status carries write, flush and apply explicitly and equal, never zero, and never beyond what the server
//     has sent: the server checks nothing, and a position too far ahead silently loses the stream's rows.
//   - The publication exists before the slot. Decoding looks the publication up in the catalog of the change's own time:
//     up to version 17 a publication that came later is an error, from 18 on its rows are skipped silently.
//   - The stream is ahead of visibility: other sessions may not yet see the rows that it brings.
//   - Only protocol version 1 of pgoutput is spoken: whole transactions, after their commit, in commit order.
//
// The package knows nothing of sinks, modes or the poll. Its consumer implements Receiver.
package replication
