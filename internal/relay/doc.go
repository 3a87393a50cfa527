// Package relay decides who is active and runs the parts while it is this instance: leadership, the start and stop order,
// and what the whole says of itself.
//
// An instance is active while it holds a lease: one session advisory lock for each outbox table, and a server that answered
// a moment ago. Between leases it stands by. Everything below (stream, poller, dispatch, lifecycle) is made anew for each
// term, so that nothing remembered outlives the right to act on it; what survives is in the table.
package relay
