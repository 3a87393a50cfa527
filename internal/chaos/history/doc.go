// Package history is what a chaos run knows from outside of the relay, and the judgement over it.
//
// Four witnesses are held against each other: the writers (what they committed and what they rolled back), the topics
// (every record, read to the end by a consumer of its own), the final table, and the table's diary (every change of a
// row's state, written by triggers). Check says which promises of docs/delivery-semantics.md the relay has broken, and
// charges each finding and each duplicate to the fault during which it happened.
//
// Invariants: the package is pure. It knows neither Postgres nor Kafka nor the relay, so that a history made by hand
// shows that each kind of violation is found.
package history
