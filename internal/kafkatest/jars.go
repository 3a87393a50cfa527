package kafkatest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// Version is the Kafka version that is started.
const Version = "4.3.1"

// LibsVariable names the environment variable with a directory of Kafka's jars (libs of a distribution), for machines
// without Maven.
const LibsVariable = "CDC_RELAY_KAFKA_LIBS"

const (
	minJava          = 17 // what Kafka 4's broker needs
	dependencyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
)

//go:embed pom.xml
var pom []byte

// kit is what running Kafka's programs takes.
type kit struct {
	java      string // path of the program
	classPath string
}

// findKit finds Java and Kafka's jars. It fetches the jars when they aren't there, and with install set, as root, also
// Debian's packages of Java and Maven.
func findKit(ctx context.Context, install bool, out io.Writer) (kit, error) {
	java, err := program(ctx, "java", "JAVA_HOME", "default-jre-headless", install, out)
	if err != nil {
		return kit{}, err
	}
	if err := checkJava(ctx, java); err != nil {
		return kit{}, err
	}
	dir := os.Getenv(LibsVariable)
	if dir == "" {
		if dir, err = jars(ctx, install, out); err != nil {
			return kit{}, fmt.Errorf("get the jars of Kafka %s: %w", Version, err)
		}
	}
	return kit{java: java, classPath: filepath.Join(dir, "*")}, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func checkJava(ctx context.Context, java string) error {
	said, err := testbed.Output(ctx, nil, nil, java, "-version")
	if err != nil {
		return err
	}
	m := javaVersion.FindStringSubmatch(said)
	if m == nil {
		return fmt.Errorf("%s doesn't tell its version:\n%s", java, said)
	}
	if v, _ := strconv.Atoi(m[1]); v < minJava {
		return fmt.Errorf("%s is version %d, and Kafka %s needs %d: set JAVA_HOME to a newer one", java, v, Version, minJava)
	}
	return nil
}

// program finds an executable: below the home directory that an environment variable names, in PATH, or by installing
// the Debian package that has it.
func program(ctx context.Context, name, homeVariable, debian string, install bool, out io.Writer) (string, error) {
	if home := os.Getenv(homeVariable); home != "" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	help := fmt.Errorf("no %s in %s or PATH: install it (on Debian the package %s)", name, homeVariable, debian)
	if !install {
		return "", help
	}
	if err := testbed.Install(ctx, out, debian); err != nil {
		return "", fmt.Errorf("%w (tried to: %w)", help, err)
	}
	return exec.LookPath(name)
}

// jars is the directory with Kafka's jars in the user's cache, filled by Maven if it is missing. Processes that need it
// at the same time wait for the one that fetches.
func jars(ctx context.Context, install bool, out io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "cdc-relay")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, fmt.Sprintf("kafka-%s-%.4x", Version, sha256.Sum256(pom)))
	unlock, err := testbed.Lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, fetch(ctx, dir, install, out)
}

// fetch works beside dir and renames at the end, so that an interrupted one leaves no half of the jars.
func fetch(ctx context.Context, dir string, install bool, out io.Writer) error {
	mvn, err := program(ctx, "mvn", "MAVEN_HOME", "maven", install, out)
	if err != nil {
		return fmt.Errorf("%w, or set %s to the libs directory of a Kafka distribution", err, LibsVariable)
	}
	fmt.Fprintf(out, "fetching the jars of Kafka %s into %s\n", Version, dir)
	unfinished := dir + ".unfinished"
	project := filepath.Join(unfinished, "pom.xml")
	err = errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755), os.WriteFile(project, pom, 0o644))
	if err != nil {
		return err
	}
	_, err = testbed.Output(ctx, nil, nil, mvn, "-q", "-B", "-f", project, dependencyPlugin,
		"-Dkafka.version="+Version, "-DincludeScope=runtime", "-DoutputDirectory="+unfinished)
	if err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}
