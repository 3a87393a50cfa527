// Package lifecycle carries every outbox row to the end of its life: it marks published rows, writes failures down,
// declares rows DEAD and tells a human, purges what was retained long enough, and does what an operator decides about
// DEAD rows.
//
// Invariants:
//   - Only what a statement's RETURNING names is done. A row that it doesn't name is early, not done: the stream shows a
//     commit before other sessions can see it. It is tried again until it sticks, or until the database has said that the
//     row is gone.
//   - Every change of a row is a compare-and-set on its status. Nothing is deleted by age alone.
//   - What is reported by onSettled is committed in the table.
//   - All outcomes of the relay are written by one goroutine, with the ids in order, so its statements can't deadlock with
//     one another. Purge and the operator's commands touch rows of other states.
//   - Payloads and keys are neither logged nor sent to the alert's receiver.
//
// Lifecycle is used by package dispatch through its caller: Mark and Fail never block, since what can be handed in is
// bounded by what dispatch keeps in flight. Purger, Dead and Sampler stand alone, for the commands and the status page.
package lifecycle
