// Package machine tries to disprove the relay's promises: it runs the built binary between a real Postgres and real Kafka
// brokers, writes to its tables in every way an application might, breaks whatever can break, and asks package history
// for the verdict.
//
// A Bed is the servers, with a proxy before each. A run (Run) has a database and topics of its own on a bed, so that
// several may follow each other. It has writers, which note what they commit and what they roll back; an operator, who
// retries DEAD rows and purges; instances of the relay; a monitor that watches their status; and a schedule of faults,
// which its seed determines: the same seed injects the same faults with the same parameters in the same order. How they
// meet the relay is not determined: a seed that found something is worth being run several times.
//
// Invariants: nothing here imports a package of the relay. A fault leaves nothing behind: after it, or when the run is
// stopped, every server, proxy and instance is mended.
package machine
