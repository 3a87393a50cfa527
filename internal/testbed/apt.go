package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// ErrNoPackages says that this process can't install Debian packages: it isn't root, or there is no apt-get.
var ErrNoPackages = errors.New("can't install packages here (needs root and apt-get)")

// Install installs Debian packages; out gets a line about it. Test binaries that need the same packages wait for each
// other.
func Install(ctx context.Context, out io.Writer, packages ...string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return ErrNoPackages
	}
	root, err := Root()
	if err != nil {
		return err
	}
	unlock, err := Lock(ctx, filepath.Join(root, "apt.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	fmt.Fprintf(out, "installing the Debian packages %v\n", packages)
	install := append([]string{"install", "-y", "-q", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"}, packages...)
	for _, args := range [][]string{{"update", "-q"}, install} {
		if _, err := Output(ctx, nil, []string{"DEBIAN_FRONTEND=noninteractive"}, apt, args...); err != nil {
			return err
		}
	}
	return nil
}

// Output runs a command to its end as user (nil: this one) with env added to the environment, and returns what it
// printed. The error has the command's output.
func Output(ctx context.Context, user *User, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = os.TempDir() // the current directory may be closed to the user
	cmd.SysProcAttr = sysProcAttr(user, syscall.SIGKILL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out)
	}
	return string(out), nil
}
