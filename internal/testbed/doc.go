// Package testbed holds what the helpers that start real servers (pgtest, kafkatest and others) have in common: a test
// binary's closers, ports and directories that no other process uses, child processes that die with their parent,
// Debian packages, and waiting for a condition.
//
// Invariants: it doesn't import testing, so that commands which start a throwaway server may use it too. It keeps no
// goroutine running, so that a server which outlives a test is no leak of that test. A server never outlives the
// process that started it, even when that is killed; the directory of a killed owner is removed by the next one that
// gets its port.
package testbed
