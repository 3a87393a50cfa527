package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports are taken from below the kernel's range for outgoing connections (32768 and up), so that nobody gets the port of
// a server by chance while it is stopped for a moment.
const firstPort, lastPort = 21000, 31999

// Place is a TCP port on 127.0.0.1 and an empty directory, both kept for this process until Release or its death.
type Place struct {
	Port int
	Dir  string
	lock *os.File
}

// Reserve takes the first place that no other process holds. What a killed owner left in its directory is removed.
func Reserve() (*Place, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	for port := firstPort; port <= lastPort; port++ {
		dir := filepath.Join(root, strconv.Itoa(port))
		lock, err := tryLock(dir + ".lock")
		if err != nil {
			return nil, fmt.Errorf("reserve port %d: %w", port, err)
		}
		if lock == nil {
			continue
		}
		p := &Place{Port: port, Dir: dir, lock: lock}
		if !p.free() {
			lock.Close()
			continue
		}
		if err := p.clear(); err != nil {
			lock.Close()
			return nil, err
		}
		return p, nil
	}
	return nil, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// Addr is the place's host and port.
func (p *Place) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)) }

// Release removes the directory and gives the port back. Further calls do nothing.
func (p *Place) Release() error {
	if p.lock == nil {
		return nil
	}
	err := os.RemoveAll(p.Dir)
	err = errors.Join(err, p.lock.Close())
	p.lock = nil
	return err
}

func (p *Place) free() bool {
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func (p *Place) clear() error {
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("remove what a former owner left: %w", err)
	}
	return os.Mkdir(p.Dir, 0o711)
}

// Root is this user's directory for throwaway servers and what they share, below os.TempDir.
func Root() (string, error) {
	root := filepath.Join(os.TempDir(), "cdc-relay-"+strconv.Itoa(os.Getuid()))
	if err := ownedDir(root); err != nil {
		return "", fmt.Errorf("directory for throwaway servers: %w", err)
	}
	return root, nil
}

// Lock waits for the lock of path, which processes share, and returns what releases it.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		f, err := tryLock(path)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", path, ctx.Err())
		case <-time.After(Tick):
		}
	}
}
