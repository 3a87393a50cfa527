package testbed

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
)

// User is an operating system user that a server runs as.
type User struct{ UID, GID uint32 }

// Unprivileged is the user for a server that refuses to run as root: nil (this user) unless this is root, else the first
// of names that exists.
func Unprivileged(names ...string) (*User, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("run as another user than root")
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &User{UID: uint32(uid), GID: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("none of the users %v exists: run as another user than root", names)
}

// Own gives the file to the user.
func (u *User) Own(path string) error {
	if u == nil {
		return nil
	}
	return os.Chown(path, int(u.UID), int(u.GID))
}
