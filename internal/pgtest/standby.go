package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// Standby makes a streaming standby of the running server (as pg_basebackup -R) and starts it, with the same settings. name
// is its application_name: what synchronous_standby_names of the primary means. It is the caller's to Close.
func (c *Cluster) Standby(ctx context.Context, name string) (*Cluster, error) {
	o := c.options
	o.BinDir = c.bin
	s, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	err = s.copyFrom(ctx, c, name)
	if err == nil {
		err = s.configure()
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a standby: %w", err), s.Close())
	}
	return s, nil
}

func (c *Cluster) copyFrom(ctx context.Context, primary *Cluster, name string) error {
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", primary.Port(), name)
	program := filepath.Join(c.bin, "pg_basebackup")
	if _, err := exec.LookPath(program); err != nil {
		return c.copyOnline(ctx, primary, from)
	}
	_, err := testbed.Output(ctx, c.user, nil, program, "-d", from, "-D", c.DataDir(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	return err
}

// Promote turns a standby into a primary and waits until it is one.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	defer conn.Close(ctx)
	var done bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote(true, 60)").Scan(&done); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	if !done {
		return fmt.Errorf("the standby wasn't promoted within 60 s\n%s", c.logTail())
	}
	return nil
}
