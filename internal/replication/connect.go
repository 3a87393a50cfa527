package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// stepTimeout bounds what the server answers at once: settings, catalog queries, the start of the stream.
const stepTimeout = 30 * time.Second

// validatePrimary refuses a server that takes no writes, so that pgconn tries the DSN's next host.
func validatePrimary(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean").ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("no answer to whether the server is a primary")
	}
	if string(results[0].Rows[0][0]) == "t" {
		return pgconn.ErrReadOnlyConnection
	}
	return nil
}

// open makes a replication connection to a primary with wal_level=logical. onNotice may be nil.
func open(ctx context.Context, cfg Config, lockTimeout time.Duration, onNotice func(*pgconn.Notice)) (*pgx.Conn, server, error) {
	cc, err := cfg.connConfig()
	if err != nil {
		return nil, server{}, because("configuration", "", "%v", err)
	}
	if onNotice != nil {
		cc.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { onNotice(n) }
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, server{}, err
	}
	srv, err := prepare(ctx, conn, cfg, lockTimeout)
	if err != nil {
		shut(conn)
		return nil, server{}, err
	}
	return conn, srv, nil
}

// shut ends the connection in order, so that the server frees the slot at once, but waits for nothing.
func shut(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // whatever state it is in, it isn't used any more
}

// server is what the stream must know of its server.
type server struct {
	blockSize, segmentSize uint64
}

func prepare(ctx context.Context, conn *pgx.Conn, cfg Config, lockTimeout time.Duration) (server, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var srv server
	var recovery bool
	var level, role string
	err := conn.QueryRow(ctx, identify).Scan(&recovery, &level, &role, &srv.blockSize, &srv.segmentSize)
	switch {
	case err != nil:
		return srv, fmt.Errorf("identify the server: %w", err)
	case recovery:
		return srv, standby()
	case level != "logical":
		return srv, because("wal_level", "set wal_level = logical and restart the server",
			"wal_level is %s: the server can't decode its WAL", level)
	}
	if _, err := conn.Exec(ctx, prepareSession, fmt.Sprint(lockTimeout.Milliseconds())); err != nil {
		return srv, fmt.Errorf("prepare the session: %w", err)
	}
	if cfg.WorkMem != "" {
		if _, err := conn.Exec(ctx, setWorkMem, cfg.WorkMem); err != nil {
			return srv, fmt.Errorf("set logical_decoding_work_mem: %w", err)
		}
	}
	return srv, nil
}

// start begins the stream at the server's current position. durable is what may be confirmed at once: the insert
// position can be ahead of what is on disk, and a confirmation must not survive a crash that the WAL doesn't.
func start(ctx context.Context, conn *pgx.Conn, cfg Config) (start, durable pglogrepl.LSN, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, startPosition).Scan(&start, &durable); err != nil {
		return 0, 0, fmt.Errorf("read the start position: %w", err)
	}
	binary := "true"
	if cfg.Text {
		binary = "false"
	}
	err = pglogrepl.StartReplication(ctx, conn.PgConn(), cfg.Slot, start, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'",
			"publication_names " + quoteLiteral(pgx.Identifier{cfg.Publication}.Sanitize()),
			"binary '" + binary + "'",
		},
	})
	if err != nil {
		return 0, 0, fmt.Errorf("start the stream: %w", err)
	}
	return start, durable, nil
}

// recordStart is the first position at or after pos where a WAL record can begin. The end of a record may lie on a page
// boundary; then the server's insert position, which the poll reads, is behind the page's header (24 bytes; 40 on the
// first page of a segment), and without new WAL the stream would never be seen to pass it.
func (s server) recordStart(pos pglogrepl.LSN) pglogrepl.LSN {
	switch p := uint64(pos); {
	case s.segmentSize > 0 && p%s.segmentSize == 0:
		return pos + 40
	case s.blockSize > 0 && p%s.blockSize == 0:
		return pos + 24
	default:
		return pos
	}
}
