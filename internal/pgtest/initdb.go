package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// newDataDir makes an initialised data directory at dir. initdb takes a second or more, a copy of its result a tenth, so
// each installation's result is kept below testbed.Root. All clusters of one installation therefore share a system
// identifier; what must tell clusters apart by it has to run initdb itself.
func newDataDir(ctx context.Context, bin, dir string, user *testbed.User) error {
	template, err := template(ctx, bin, user)
	if err != nil {
		return err
	}
	_, err = testbed.Output(ctx, nil, nil, "cp", "-a", template, dir)
	return err
}

func template(ctx context.Context, bin string, user *testbed.User) (string, error) {
	root, err := testbed.Root()
	if err != nil {
		return "", err
	}
	version, err := testbed.Output(ctx, user, nil, filepath.Join(bin, "postgres"), "--version")
	if err != nil {
		return "", fmt.Errorf("%w\n(a server started by root runs as another user, who must be able to reach %s)", err, bin)
	}
	path := filepath.Join(root, fmt.Sprintf("initdb-%x", sha256.Sum256([]byte(version+bin)))[:24])
	unlock, err := testbed.Lock(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, makeTemplate(ctx, bin, path, user)
}

// makeTemplate works beside path and renames at the end, so that a killed process leaves no half of a template.
func makeTemplate(ctx context.Context, bin, path string, user *testbed.User) error {
	unfinished := path + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := user.Own(unfinished); err != nil {
		return err
	}
	_, err := testbed.Output(ctx, user, []string{"TZ=UTC"}, filepath.Join(bin, "initdb"), "-D", unfinished, "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}
