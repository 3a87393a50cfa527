// Package event holds the words that every other package of the relay shares: what an event is, where it came from,
// what became of it, and how an error of a sink is classified.
//
// It is the lowest floor: it does no I/O, starts no goroutine and imports no other package of this module.
package event
