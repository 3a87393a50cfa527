package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// How long a server may take to start, and to stop in the way it was asked.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// Options say what differs from a server that is fit for tests of logical replication.
type Options struct {
	Settings map[string]string // of postgresql.conf, over the defaults below
	Durable  bool              // fsync and full_page_writes on, as in production; false: off, which survives every death of the server but not of the machine
	BinDir   string            // of initdb and postgres; default: CDC_RELAY_PG_BIN, PATH, the usual places
	Version  string            // a major version ("17") that is fetched; default: what is found
	Install  bool              // as root, install Debian's package when there is no Postgres
	Out      io.Writer         // gets a line about what takes long; nil: nobody
}

// defaults are generous with what tests use up (slots, connections) and small where it costs memory.
func defaults(durable bool) map[string]string {
	s := map[string]string{
		"wal_level":                 "logical",
		"max_connections":           "300",
		"max_wal_senders":           "50",
		"max_replication_slots":     "50",
		"max_prepared_transactions": "20",
		"shared_buffers":            "32MB",
		"timezone":                  "UTC",
		"log_timezone":              "UTC",
		"log_line_prefix":           "%m [%p] %d %a ",
		"hot_standby":               "on",
		"cluster_name":              "cdc_relay_throwaway",
	}
	if !durable {
		s["fsync"], s["full_page_writes"] = "off", "off"
	}
	return s
}

// Cluster is one Postgres server with its data directory, on 127.0.0.1 and a Unix socket, superuser postgres, no
// password. Its methods may be called from several goroutines.
type Cluster struct {
	bin     string
	user    *testbed.User
	place   *testbed.Place
	options Options
	version string

	mu     sync.Mutex // guards the rest
	server *testbed.Process
	closed bool
}

// StartCluster initialises a data directory and starts a server on it. Close ends both; so does the end of this process.
func StartCluster(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	err = newDataDir(ctx, c.bin, c.DataDir(), c.user)
	if err == nil {
		err = c.configure()
	}
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a postgres cluster: %w", err), c.Close())
	}
	return c, nil
}

func newCluster(ctx context.Context, o Options) (*Cluster, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	var err error
	if o.Version != "" && o.BinDir == "" {
		if o.BinDir, err = Fetch(ctx, o.Version, o.Out); err != nil {
			return nil, err
		}
	}
	bin, err := binDir(o.BinDir)
	if o.Install && errors.Is(err, errNoPostgres) {
		bin, err = findOrInstall(ctx, o.BinDir, o.Out)
	}
	if err != nil {
		return nil, err
	}
	user, err := testbed.Unprivileged("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	place, err := testbed.Reserve()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, user: user, place: place, options: o}
	if err := user.Own(place.Dir); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// configure writes the settings to postgresql.conf. The last line of a name counts there.
func (c *Cluster) configure() error {
	settings := defaults(c.options.Durable)
	settings["listen_addresses"] = "127.0.0.1"
	settings["port"] = fmt.Sprint(c.Port())
	settings["unix_socket_directories"] = c.SocketDir()
	maps.Copy(settings, c.options.Settings)
	var conf bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(c.DataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteTo(f)
	return errors.Join(err, f.Close())
}

// Start starts the stopped server on its old port and waits until it accepts connections: as a primary, or as a standby
// that answers queries. A server that runs is left alone.
func (c *Cluster) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.New("the cluster is closed")
	}
	if c.server != nil && !c.server.Exited(0) {
		return nil
	}
	log, err := os.OpenFile(c.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, "postgres"), "-D", c.DataDir())
	cmd.Dir = c.place.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// SIGQUIT is Postgres' immediate shutdown: it ends all processes of the server, unlike SIGKILL.
	if c.server, err = testbed.StartProcess(cmd, c.user, syscall.SIGQUIT); err != nil {
		return err
	}
	return c.ready(ctx, c.server)
}

func (c *Cluster) ready(ctx context.Context, server *testbed.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.DSN("postgres"))
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&c.version)
			conn.Close(ctx)
			if err == nil {
				return nil
			}
		}
		if server.Exited(testbed.Tick) {
			return fmt.Errorf("postgres ended while starting: %w\n%s", server.Err(), c.logTail())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("postgres didn't become ready within %v: %w\n%s", startTimeout, err, c.logTail())
		}
	}
}

var stopSignals = map[string]syscall.Signal{
	"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT, "kill": syscall.SIGKILL,
}

// Stop stops the server and waits for its end, at most a minute. mode is one of pg_ctl's: smart (when all sessions have
// ended), fast (sessions are ended), immediate (as after a crash); or kill, which kills the first process, and the others
// notice. The data stays for Start.
func (c *Cluster) Stop(mode string) error {
	sig, ok := stopSignals[mode]
	if !ok {
		return fmt.Errorf("stop postgres: unknown mode %q", mode)
	}
	server := c.process()
	if server == nil {
		return nil
	}
	if err := server.Stop(sig, stopTimeout); err != nil {
		return fmt.Errorf("stop postgres (%s): %w\n%s", mode, err, c.logTail())
	}
	return nil
}

// Restart stops the server fast and starts it.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.Stop("fast"); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Close stops the server at once and removes its directory. Further calls do nothing.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var err error
	if c.server != nil {
		if err = c.server.Stop(syscall.SIGQUIT, 10*time.Second); err != nil {
			err = c.server.Stop(syscall.SIGKILL, 10*time.Second)
		}
	}
	return errors.Join(err, c.place.Release())
}

// Set changes a setting for the whole server (ALTER SYSTEM, then reload). Settings that need a restart wait for Restart.
func (c *Cluster) Set(ctx context.Context, name, value string) error {
	quoted := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	if err := c.exec(ctx, "ALTER SYSTEM SET "+pgx.Identifier{name}.Sanitize()+" = "+quoted); err != nil {
		return err
	}
	return c.exec(ctx, "SELECT pg_reload_conf()")
}

func (c *Cluster) exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

func (c *Cluster) process() *testbed.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}
