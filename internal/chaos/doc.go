// Package chaos makes faults for tests: a TCP proxy that cuts, stalls, delays and slows the connections through it. It
// knows nothing of the protocols.
package chaos
