package pgtest

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
)

// DSN is the URL of a database, as the superuser over TCP.
func (c *Cluster) DSN(db string) string { return dsn("postgres", c.Addr(), db) }

// Addr is the server's host and port: the target for a proxy.
func (c *Cluster) Addr() string { return c.place.Addr() }

// Port is the server's TCP port on 127.0.0.1; it stays the same over Stop and Start.
func (c *Cluster) Port() int { return c.place.Port }

// DataDir is the server's data directory.
func (c *Cluster) DataDir() string { return filepath.Join(c.place.Dir, "data") }

// SocketDir is the directory of the server's Unix socket: libpq's host.
func (c *Cluster) SocketDir() string { return c.place.Dir }

// Log is the path of the server's log.
func (c *Cluster) Log() string { return filepath.Join(c.place.Dir, "log") }

// BinDir is the directory of the server's programs.
func (c *Cluster) BinDir() string { return c.bin }

// ServerVersion is what the server calls itself, such as 15.18 (Debian 15.18-0+deb12u1).
func (c *Cluster) ServerVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Pid is the process id of the server's first process, for SIGSTOP and the like.
func (c *Cluster) Pid() int {
	if p := c.process(); p != nil {
		return p.Pid()
	}
	return 0
}

// Running reports whether the server's processes are there; it may be on its way up or down.
func (c *Cluster) Running() bool {
	p := c.process()
	return p != nil && !p.Exited(0)
}

func dsn(user, addr, db string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: addr, Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// logTail is the end of the server's log, for errors.
func (c *Cluster) logTail() string {
	log, err := os.ReadFile(c.Log())
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}
