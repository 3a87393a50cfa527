package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheVersionIsInTheDirectorysName(t *testing.T) {
	for dir, want := range map[string]float64{
		"/usr/lib/postgresql/15/bin": 15, "/usr/lib/postgresql/9.6/bin": 9.6, "/usr/pgsql-17/bin": 17,
		"/opt/homebrew/opt/postgresql@18/bin": 18, "/usr/local/pgsql/bin": 0,
	} {
		if got := versionOfDir(dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
}

func TestTheNamedDirectoryGoesBeforePathAndMustHaveThePrograms(t *testing.T) {
	named, inPath := t.TempDir(), t.TempDir()
	t.Setenv("PATH", inPath)
	t.Setenv(BinVariable, named)
	if _, err := binDir(""); err == nil || !strings.Contains(err.Error(), named) {
		t.Errorf("an empty directory: %v", err)
	}
	for _, dir := range []string{named, inPath} {
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := binDir(""); err != nil || got != named {
		t.Errorf("%s, %v", got, err)
	}
	t.Setenv(BinVariable, "")
	if got, err := binDir(""); err != nil || got != inPath {
		t.Errorf("%s, %v", got, err)
	}
}
