package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// emptied are the directories whose contents a base backup leaves out: what belongs to the running server, the slots, and
// the WAL, which the standby gets from the primary.
var emptied = []string{
	"pg_wal", "pg_wal/archive_status", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
}

// copyOnline does what pg_basebackup -R does, by the functions for it and cp: some distributions have the server without
// the client programs, and those of an older version refuse.
func (c *Cluster) copyOnline(ctx context.Context, primary *Cluster, conninfo string) error {
	conn, err := pgx.Connect(ctx, primary.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return err
	}
	begin, end := "SELECT pg_backup_start('cdc_relay', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if version < 150000 {
		begin, end = "SELECT pg_start_backup('cdc_relay', true, false)", "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	if _, err := conn.Exec(ctx, begin); err != nil {
		return fmt.Errorf("begin a base backup: %w", err)
	}
	if err := c.copyFiles(ctx, primary); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, end).Scan(&label); err != nil {
		return fmt.Errorf("end a base backup: %w", err)
	}
	quoted := strings.ReplaceAll(conninfo, "'", "''")
	return errors.Join(
		c.write("backup_label", label), c.write("standby.signal", ""), c.write("postgresql.auto.conf", "primary_conninfo = '"+quoted+"'\n"),
	)
}

// copyFiles copies the data directory of a running server, in which files come and go.
func (c *Cluster) copyFiles(ctx context.Context, primary *Cluster) error {
	out, err := testbed.Output(ctx, c.user, []string{"LC_ALL=C"}, "cp", "-a", primary.DataDir(), c.DataDir())
	for l := range strings.Lines(out) {
		if err != nil && !strings.Contains(l, "No such file or directory") {
			return fmt.Errorf("copy the data directory: %w", err)
		}
	}
	for _, name := range []string{"postmaster.pid", "postmaster.opts"} {
		if err := os.Remove(filepath.Join(c.DataDir(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, dir := range emptied {
		files, err := filepath.Glob(filepath.Join(c.DataDir(), dir, "*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			if filepath.Base(f) == "archive_status" {
				continue
			}
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a file of the data directory.
func (c *Cluster) write(name, text string) error {
	path := filepath.Join(c.DataDir(), name)
	return errors.Join(os.WriteFile(path, []byte(text), 0o600), c.user.Own(path))
}
