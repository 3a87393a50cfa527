package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

const (
	publicationName = "chaos"
	stopWithin      = 20 * time.Second
)

// instance is one of the relays: a process that may be killed and started again, behind a proxy of its own.
type instance struct {
	world  *world
	n      int
	proxy  *chaos.Proxy // to Postgres
	place  *testbed.Place
	config string

	acting sync.Mutex // held by who starts or ends the process
	mu     sync.Mutex // guards the rest
	server *testbed.Process
	wanted bool // it should be running
	logs   []logFile
	seen   seen
}

// logFile is what one process has written.
type logFile struct {
	path string
	skew time.Duration // its clock is so much ahead
}

func (w *world) newInstance(n int) (*instance, error) {
	i := &instance{world: w, n: n}
	var err error
	if i.proxy, err = chaos.NewProxy(w.bed.postgres.Addr()); err != nil {
		return nil, err
	}
	if i.place, err = testbed.Reserve(); err != nil {
		return nil, errors.Join(err, i.close())
	}
	i.config = filepath.Join(i.place.Dir, "relay.yaml")
	if err := os.WriteFile(i.config, []byte(i.yaml()), 0o600); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

// yaml is small in every bound, so that the bounds are met often, and quick where something is waited for.
func (i *instance) yaml() string {
	w := i.world
	return fmt.Sprintf(`
postgres: {dsn: "postgres://postgres@%s/%s?sslmode=disable"}
outboxes: [{table: public.%s}, {table: public.%s}]
replication: {slot: %s, publication: %s}
fallback_poll: {interval: 3s, batch: 500}
dispatch: {max_in_flight: %d, ramp_up: 1s}
retry: {initial: 300ms, max: 2s, max_attempts: 8}
lifecycle: {mark_batch: %d, retention: %v, purge_interval: 5s}
sink: {kind: kafka, kafka: {brokers: [%s], timeout: %v}}
http: {listen: "%s"}
log: {level: debug, format: json}
shutdown_timeout: 10s
`, i.proxy.Addr(), w.database, tables[0], tables[1], w.slot(), publicationName, maxInFlight, markBatch, retention,
		strings.Join(w.bed.proxied(), ", "), sinkTimeout, i.place.Addr())
}

// command runs a command of the relay to its end.
func (i *instance) command(ctx context.Context, env []string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.world.options.Binary, append(args, "-c", i.config)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cdc-relay %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts the relay if it doesn't run, with a clock that is off by skew.
func (i *instance) start(skew time.Duration) error {
	i.acting.Lock()
	defer i.acting.Unlock()
	return i.startLocked(skew)
}

func (i *instance) startLocked(skew time.Duration) error {
	if i.running() {
		return nil
	}
	o := i.world.options
	path := filepath.Join(o.Dir, fmt.Sprintf("%s-relay%d-%d.log", i.world.database, i.n, len(i.logs)))
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	binary := o.Binary
	if skew != 0 {
		binary = o.Skewed
	}
	cmd := exec.Command(binary, "run", "-c", i.config)
	cmd.Env = append(os.Environ(), "CHAOS_CLOCK_SKEW="+skewText(skew), "GORACE=halt_on_error=0")
	cmd.Stdout, cmd.Stderr = log, log
	server, err := testbed.StartProcess(cmd, nil, syscall.SIGKILL)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.server, i.wanted = server, true
	i.logs = append(i.logs, logFile{path, skew})
	return nil
}

// skewText is a skew as the skewed relay takes it: +00:10.
func skewText(skew time.Duration) string {
	sign := '+'
	if skew < 0 {
		sign, skew = '-', -skew
	}
	return fmt.Sprintf("%c%02d:%02d", sign, int(skew.Hours()), int(skew.Minutes())%60)
}

// end ends the process with a signal and waits for that.
func (i *instance) end(sig syscall.Signal) error {
	i.acting.Lock()
	defer i.acting.Unlock()
	i.mu.Lock()
	i.wanted = false
	server := i.server
	i.mu.Unlock()
	if server == nil || server.Exited(0) {
		return nil
	}
	err := server.Stop(sig, stopWithin)
	if err != nil {
		i.world.report(history.Process, "instance %d: %v", i.n, err)
		err = server.Stop(syscall.SIGKILL, stopWithin)
	}
	return err
}

// signal sends a signal, and nothing else.
func (i *instance) signal(sig syscall.Signal) {
	i.acting.Lock()
	defer i.acting.Unlock()
	if i.running() {
		_ = syscall.Kill(i.process().Pid(), sig) // it may have ended just now
	}
}

// process must not be asked with mu held: its answers wait for one another.
func (i *instance) process() *testbed.Process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

func (i *instance) running() bool {
	server := i.process()
	return server != nil && !server.Exited(0)
}

// mend lets the process go on, and starts it when it should run and doesn't.
func (i *instance) mend() error {
	i.signal(syscall.SIGCONT)
	return i.start(0)
}

// crashed reports, once, that the process has ended by itself.
func (i *instance) crashed() (code string, crashed bool) {
	i.mu.Lock()
	server, wanted := i.server, i.wanted
	i.mu.Unlock()
	if !wanted || !server.Exited(0) {
		return "", false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.server != server || !i.wanted {
		return "", false
	}
	i.wanted = false
	return fmt.Sprint(server.Err()), true
}

func (i *instance) close() (err error) {
	if i.server != nil {
		err = i.end(syscall.SIGKILL)
	}
	if i.proxy != nil {
		err = errors.Join(err, i.proxy.Close())
	}
	if i.place != nil {
		err = errors.Join(err, i.place.Release())
	}
	return err
}
