package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// BinVariable names the environment variable with the directory of redis-server.
const BinVariable = "CDC_RELAY_REDIS_BIN"

var errNoRedis = errors.New("no redis-server found in " + BinVariable + " or PATH: install the package redis-server, or set " +
	BinVariable + " to the directory that has it")

// findServer is the path of redis-server.
func findServer() (string, error) {
	if dir := os.Getenv(BinVariable); dir != "" {
		path, err := exec.LookPath(filepath.Join(dir, "redis-server"))
		if err != nil {
			return "", fmt.Errorf("redis-server isn't in %s: %w", dir, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errNoRedis
	}
	return path, nil
}

// findOrInstall is findServer, and installs Debian's package when nothing is found and this is root.
func findOrInstall(ctx context.Context, out io.Writer) (string, error) {
	path, err := findServer()
	if !errors.Is(err, errNoRedis) {
		return path, err
	}
	if installErr := testbed.Install(ctx, out, "redis-server"); installErr != nil {
		return "", fmt.Errorf("%w (tried to install it: %w)", err, installErr)
	}
	return findServer()
}
