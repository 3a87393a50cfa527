// Command cdc-relay is a message relay for the transactional outbox pattern on PostgreSQL.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly stop. From then on signals have their default effect again, so that a second
	// one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr, env: os.Environ()}))
}
