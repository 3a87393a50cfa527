// Package redistest starts real Redis servers for tests: one alone, with users, TLS and replicas where wanted, a master
// with Sentinels, and a Cluster.
//
// The programs are those of CDC_RELAY_REDIS_BIN, PATH, or Debian's package, which is installed when this is root. The
// servers listen on ports of 127.0.0.1 that no other process of this machine's tests uses. They keep an append-only file that
// survives their death, though not the machine's, so that a server which is stopped comes back with what it had.
//
// Invariants: no goroutine of this package runs between its calls. A server dies with the process that started it.
package redistest
