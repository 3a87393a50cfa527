// Package table knows what an outbox table looks like: the DDL of a new one, how an existing one is mapped, the quoted
// identifiers that other packages put into their SQL, and how a row becomes an event.
//
// Invariants:
//   - An Outbox is immutable. Who notices that the table was changed resolves it again.
//   - There is one decoder for both paths. A row gives an equal event whether it came by the stream or by the poll, in
//     text or in binary form; the fields of the event that tell of the way (Path, Xid, Lag, DueIn, ReceivedAt) are the
//     callers'.
//   - A row that can't become a message is an event with Invalid set, never an error: somebody has to settle it.
//
// The package opens no connection and starts no goroutine. Publication and slot belong to package replication, the
// statements that read and change rows to packages fallbackpoll and lifecycle.
package table
