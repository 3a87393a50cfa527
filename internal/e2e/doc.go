// Package e2e tests the built binary from outside, as its users meet it: configuration in, rows in a real Postgres, events
// out of a real broker or on stdout, status over HTTP, exit codes, kill -9.
package e2e
