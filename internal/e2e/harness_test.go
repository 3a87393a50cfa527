package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cdc-relay-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "cdc-relay")
	build := exec.Command("go", "build", "-race", "-o", binary, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the binary: %v\n%s", err, out)
		return 1
	}
	return testbed.Run(m)
}

// line is one event as the stdout sink writes it.
type line struct {
	ID        int64             `json:"id"`
	MessageID string            `json:"message_id"`
	Topic     string            `json:"topic"`
	Key       *string           `json:"key"`
	Payload   json.RawMessage   `json:"payload"`
	Headers   map[string]string `json:"headers"`
	Path      string            `json:"path"`
}

// instance is a running relay.
type instance struct {
	t      *testing.T
	cmd    *exec.Cmd
	http   string
	exited chan struct{}

	mu     sync.Mutex
	lines  []line
	errors bytes.Buffer // what it wrote to stderr
}

// settings of an instance: YAML below the keys that every test needs.
type settings struct {
	dsn  string // default: the database's
	yaml string // sections beside postgres, replication, http
	repl string // keys of the section replication
	env  []string
}

// configFile writes a configuration and returns its path and the address of the admin endpoint.
func configFile(t *testing.T, db *pgtest.DB, s settings) (path, addr string) {
	t.Helper()
	place, err := testbed.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = place.Release() })
	if s.dsn == "" {
		s.dsn = db.DSN
	}
	text := fmt.Sprintf("postgres: {dsn: %q}\nhttp: {listen: %q}\nreplication:\n  slot: %s\n  publication: %q\n%s\n%s\n",
		s.dsn, place.Addr(), db.Slot, db.Publication, indent(s.repl), s.yaml)
	path = filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, place.Addr()
}

func indent(keys string) string {
	if keys == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(keys), "\n", "\n  ")
}

// command runs a command of the binary to its end.
func command(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// initialise makes the table, publication and slot.
func initialise(t *testing.T, config string) {
	t.Helper()
	if out, errs, code := command(t, nil, "init", "-c", config); code != 0 {
		t.Fatalf("init: exit code %d\n%s%s", code, out, errs)
	}
}

// launch starts a relay on a configuration; it is killed at the end of the test.
func launch(t *testing.T, config, addr string, env ...string) *instance {
	t.Helper()
	r := &instance{t: t, http: "http://" + addr, exited: make(chan struct{})}
	r.cmd = exec.Command(binary, "run", "-c", config)
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { r.readEvents(stdout) })
	readers.Go(func() { r.readLog(stderr) })
	go func() {
		readers.Wait()
		_ = r.cmd.Wait() // the exit code is asked for where it matters
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("log of the relay:\n%s", tail(r.log(), 60))
		}
	})
	return r
}

func (r *instance) readEvents(from io.Reader) {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		var l line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			r.t.Errorf("stdout: %v: %.200s", err, scan.Text())
			continue
		}
		r.mu.Lock()
		r.lines = append(r.lines, l)
		r.mu.Unlock()
	}
}

func (r *instance) readLog(from io.Reader) {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		r.mu.Lock()
		r.errors.Write(append(scan.Bytes(), '\n'))
		r.mu.Unlock()
		if strings.Contains(scan.Text(), "DATA RACE") {
			r.t.Error("the race detector found something in the relay, see its log")
		}
	}
}

func (r *instance) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors.String()
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// events are the events on stdout so far.
func (r *instance) events() []line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]line(nil), r.lines...)
}

// kill ends the relay as a crash would.
func (r *instance) kill() {
	_ = r.cmd.Process.Kill() // it may have exited
	<-r.exited
}

// terminate asks the relay to stop and returns its exit code.
func (r *instance) terminate() int {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	return r.exitCode(40 * time.Second)
}

func (r *instance) exitCode(within time.Duration) int {
	r.t.Helper()
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		r.t.Fatalf("the relay does not exit")
		return -1
	}
}

// status is what tests read of GET /status.
type status struct {
	Leader bool   `json:"leader"`
	Mode   string `json:"mode"`
	Reason string `json:"mode_reason"`
	Sink   struct {
		Up bool `json:"up"`
	} `json:"sink"`
	Slot struct {
		Retained int64 `json:"retained_wal_bytes"`
	} `json:"slot"`
	Stream struct {
		Up     bool   `json:"up"`
		Reason string `json:"reason"`
	} `json:"stream"`
	Transitions []struct {
		From, To, Reason string
	} `json:"transitions"`
	Degraded []string `json:"degraded"`
}

func (r *instance) get(path string) (int, []byte, error) {
	resp, err := http.Get(r.http + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

func (r *instance) status() (s status, err error) {
	_, body, err := r.get("/status")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s, err
}

// awaitMode waits until the relay is in a mode.
func (r *instance) awaitMode(mode string) {
	r.t.Helper()
	pgtest.Eventually(r.t, 60*time.Second, "mode "+mode, func() (bool, error) {
		select {
		case <-r.exited:
			r.t.Fatalf("the relay has exited with code %d", r.cmd.ProcessState.ExitCode())
		default:
		}
		s, err := r.status()
		return s.Mode == mode, err
	})
}

// metric is the value of a metric, summed over its labels.
func (r *instance) metric(name string) float64 {
	r.t.Helper()
	_, body, err := r.get("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, l := range strings.Split(string(body), "\n") {
		rest, ok := strings.CutPrefix(l, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &v); err != nil {
			r.t.Fatalf("metric %s: %v", l, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		r.t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// settledRows waits until no row of public.outbox is PENDING.
func settledRows(t *testing.T, db *pgtest.DB, within time.Duration) {
	t.Helper()
	pgtest.Eventually(t, within, "all rows to reach their end", func() (bool, error) {
		return pgtest.One[int](t, db, "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE status = 'PENDING' LIMIT 1) p") == 0, nil
	})
}
