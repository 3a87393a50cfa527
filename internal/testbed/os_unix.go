//go:build unix

package testbed

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const sigCont = syscall.SIGCONT

// tryLock takes the advisory lock of path; nil without an error when another process (or another opening of the file in
// this one) has it. The kernel releases it when the owner dies. Children don't inherit it: Go opens files close-on-exec.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	return nil, err
}

// ownedDir makes a directory that only this user can write to. A fixed name in a directory that everybody can write to
// could be somebody else's.
func ownedDir(path string) error {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s isn't a directory of this user: remove it", path)
	}
	return nil
}
