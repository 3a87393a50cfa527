// Package sinktest is the suite that every sink passes, on its real server. A sink's own tests describe the server in a
// Target and call Run; what the contract (package sink) promises is tested here once, what is special to the broker
// stays in the sink's package.
//
// Invariants: it knows no broker. What was delivered is read back by the Target, independently of the sink.
package sinktest
