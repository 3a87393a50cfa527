package testbed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a running server. The kernel ends it when this process dies.
type Process struct {
	cmd *exec.Cmd
	// alive is the read end of a pipe whose write end only the server and its children have: it ends when all of them
	// have exited. So nobody has to sit in Wait, and no goroutine is needed.
	alive *os.File

	mu   sync.Mutex // guards the rest
	gone bool
	err  error
}

// StartProcess starts cmd as user (nil: this one) in a process group of its own, so that an interrupt from the terminal
// doesn't reach it before its owner has decided. onDeath is what the kernel sends it when this process dies (Linux).
func StartProcess(cmd *exec.Cmd, user *User, onDeath syscall.Signal) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	// The signal goes out when the thread that started the child ends. The runtime ends a thread only when a goroutine
	// exits that has locked itself to it.
	cmd.SysProcAttr = sysProcAttr(user, onDeath)
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &Process{cmd: cmd, alive: r}, nil
}

// Pid is the server's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited waits up to within and reports whether the server and all its children are gone.
func (p *Process) Exited(within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return true
	}
	// A deadline that has passed would make Read return before it looks.
	_ = p.alive.SetReadDeadline(time.Now().Add(max(within, time.Millisecond)))
	if _, err := p.alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return false
	}
	p.err = p.cmd.Wait()
	p.alive.Close()
	p.gone = true
	return true
}

// Err is how the server ended, nil while it runs or when its exit code was 0.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Stop sends sig and waits for the end, no longer than timeout. A server that is gone already is stopped; one that was
// halted (SIGSTOP) is made to hear.
func (p *Process) Stop(sig os.Signal, timeout time.Duration) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.cmd.Path, err)
	}
	_ = p.cmd.Process.Signal(sigCont)
	if !p.Exited(timeout) {
		return fmt.Errorf("%s (pid %d) still runs %v after %v", p.cmd.Path, p.Pid(), timeout, sig)
	}
	return nil
}
