// Package pgtest starts throwaway Postgres servers: the real one, for tests and for the commands that need a server for
// a moment.
//
// Two layers. Cluster is one server with its data directory; it can be stopped in every way Postgres knows, started
// again on the same port, copied to a streaming standby and promoted. Database is what a test asks for: a database of
// its own in the cluster that all tests of a binary share, with names for a slot and a publication that nobody else
// uses.
//
// A binary that uses Shared or Database should end it in TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
//
// Without that the server still ends with the process.
//
// Invariants: no server outlives the process that started it; a missing Postgres fails the test with how to get it. The
// package doesn't import testing.
package pgtest
