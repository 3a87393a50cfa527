package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// How long a server may take to start, and to stop.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// Options say what differs from a plain server.
type Options struct {
	Settings map[string]string // of redis.conf, over the defaults
	Password string            // of the default user; default: none
	Users    []string          // further users as ACL SETUSER takes them: "alice on >secret ~* +@all"
	TLS      bool              // makes certificates and listens for TLS too; a client's certificate is taken, not demanded
	Install  bool              // as root, install Debian's package when there is no redis-server
	Out      io.Writer         // gets a line about what takes long; nil: nobody

	sentinel []string // a Sentinel, with these lines of configuration, in order
	bus      bool     // a cluster's node
}

// Server is one redis-server. Its methods may be called from several goroutines, those that start and stop it only one
// at a time.
type Server struct {
	bin          string
	options      Options
	place        *testbed.Place // has the directory
	tls, bus     *testbed.Place // ports; nil: none
	certificates *testbed.Certificates
	client       *redis.Client

	mu      sync.Mutex // guards the rest
	process *testbed.Process
	closed  bool
}

// quiet drops what go-redis prints of servers that are down, which is what tests do to them.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// StartServer starts a server and waits until it serves. Close ends it; so does the end of this process.
func StartServer(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(ctx, o)
	if err == nil {
		err = s.configure()
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil && s != nil {
		return nil, errors.Join(fmt.Errorf("start redis: %w", err), s.Close())
	}
	return s, err
}

func newServer(ctx context.Context, o Options) (*Server, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	bin, err := findServer()
	if o.Install {
		bin, err = findOrInstall(ctx, o.Out)
	}
	if err != nil {
		return nil, err
	}
	silence()
	s := &Server{bin: bin, options: o}
	if s.place, err = testbed.Reserve(); err == nil && o.TLS {
		if s.tls, err = testbed.Reserve(); err == nil {
			s.certificates, err = testbed.NewCertificates(s.place.Dir)
		}
	}
	if err == nil && o.bus {
		s.bus, err = testbed.Reserve()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr(), Password: o.Password, MaxRetries: -1, DialerRetries: 1, ReadTimeout: commandTimeout, Protocol: 2, DisableIdentity: true,
		PipelinePoolSize: -1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	return s, nil
}

// configure writes redis.conf. Servers write to it too (CONFIG REWRITE, and Sentinels all the time).
func (s *Server) configure() error {
	settings := map[string]string{
		"bind": "127.0.0.1", "port": fmt.Sprint(s.place.Port), "dir": s.place.Dir, "daemonize": "no", "save": `""`,
		// Each command is written before it is answered, and the kernel keeps it when the server is killed.
		"appendonly": "yes", "appendfsync": "no",
		"shutdown-timeout": "0", "repl-diskless-sync-delay": "0",
	}
	if s.options.sentinel != nil {
		settings = map[string]string{"bind": "127.0.0.1", "port": settings["port"], "dir": s.place.Dir}
	}
	if s.options.Password != "" {
		settings["requirepass"], settings["masterauth"] = s.options.Password, s.options.Password
	}
	if c := s.certificates; c != nil {
		settings["tls-port"] = fmt.Sprint(s.tls.Port)
		settings["tls-cert-file"], settings["tls-key-file"], settings["tls-ca-cert-file"] = c.ServerCert, c.ServerKey, c.CA
		settings["tls-auth-clients"] = "optional"
	}
	if s.bus != nil {
		settings["cluster-port"] = fmt.Sprint(s.bus.Port)
	}
	maps.Copy(settings, s.options.Settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s %s\n", name, settings[name])
	}
	for _, user := range s.options.Users {
		fmt.Fprintf(&conf, "user %s\n", user)
	}
	for _, line := range s.options.sentinel {
		fmt.Fprintf(&conf, "sentinel %s\n", line)
	}
	return os.WriteFile(s.conf(), []byte(conf.String()), 0o600)
}

func (s *Server) conf() string { return filepath.Join(s.place.Dir, "redis.conf") }

// Log is the path of the server's log.
func (s *Server) Log() string { return filepath.Join(s.place.Dir, "log") }

// Addr is the server's host and port.
func (s *Server) Addr() string { return s.place.Addr() }

// TLSAddr is the same for TLS, which the options must have asked for.
func (s *Server) TLSAddr() string { return s.tls.Addr() }

// URL is the server's URL with the default user's password.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.options.Password != "" {
		u.User = url.UserPassword("", s.options.Password)
	}
	return u.String()
}

// Certificates are the client's files, nil without Options.TLS.
func (s *Server) Certificates() *testbed.Certificates { return s.certificates }

// Start starts the stopped server on its old port with its old data and waits until it serves. A server that runs is left
// alone.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("the server is closed")
	}
	if s.process != nil && !s.process.Exited(0) {
		return nil
	}
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.bin, s.conf())
	if s.options.sentinel != nil {
		cmd.Args = append(cmd.Args, "--sentinel")
	}
	cmd.Dir = s.place.Dir
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = testbed.StartProcess(cmd, nil, syscall.SIGKILL); err != nil {
		return err
	}
	return s.ready(ctx, s.process)
}

// ready waits until the server answers, which it does without error only when it has loaded its data.
func (s *Server) ready(ctx context.Context, process *testbed.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if process.Exited(testbed.Tick) {
			return fmt.Errorf("redis ended while starting: %w\n%s", process.Err(), s.logTail())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("redis isn't ready within %v: %w\n%s", startTimeout, err, s.logTail())
		}
	}
}

// Stop shuts the server down in order.
func (s *Server) Stop() error { return s.stop(syscall.SIGTERM) }

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() error { return s.stop(syscall.SIGKILL) }

// Pause halts the server (SIGSTOP): it keeps its connections and says nothing. Continue wakes it.
func (s *Server) Pause() error { return syscall.Kill(s.Pid(), syscall.SIGSTOP) }

// Continue ends Pause.
func (s *Server) Continue() error { return syscall.Kill(s.Pid(), syscall.SIGCONT) }

// Pid is the server's process id.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid()
}

func (s *Server) stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	if err := s.process.Stop(sig, stopTimeout); err != nil {
		return fmt.Errorf("stop redis: %w\n%s", err, s.logTail())
	}
	return nil
}

// Close kills the server and removes its directory. Further calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := s.stop(syscall.SIGKILL)
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	for _, p := range []*testbed.Place{s.place, s.tls, s.bus} {
		if p != nil {
			err = errors.Join(err, p.Release())
		}
	}
	return err
}

// logTail is the end of the log, for errors.
func (s *Server) logTail() string {
	log, err := os.ReadFile(s.Log())
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}
