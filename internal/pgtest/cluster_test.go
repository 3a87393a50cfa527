package pgtest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestASharedClusterDecodesLogically(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if got := pgtest.One[string](t, db, "SHOW wal_level"); got != "logical" {
		t.Errorf("wal_level = %s", got)
	}
	if got := pgtest.One[string](t, db, "SHOW fsync"); got != "off" {
		t.Errorf("fsync = %s", got)
	}
	if v := db.Cluster.ServerVersion(); !strings.HasPrefix(pgtest.One[string](t, db, "SHOW server_version"), v) || v == "" {
		t.Errorf("ServerVersion() = %q", v)
	}
}

func TestDataSurvivesEveryWayToStop(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{Durable: true, Settings: map[string]string{"wal_level": "replica", "log_line_prefix": "it's %m "}})
	db := c.Database(t)
	db.Exec(t, "CREATE TABLE n (mode text)")
	port := c.Port()
	for _, mode := range []string{"smart", "fast", "immediate", "kill"} {
		conn := db.Connect(t)
		if _, err := conn.Exec(t.Context(), "INSERT INTO n VALUES ($1)", mode); err != nil {
			t.Fatal(err)
		}
		conn.Close(t.Context())
		terminateAll(t, c) // smart waits for every session
		if err := c.Stop(mode); err != nil {
			t.Fatal(err)
		}
		if c.Running() {
			t.Errorf("still running after a stop (%s)", mode)
		}
		if _, err := pgx.Connect(t.Context(), db.DSN); err == nil {
			t.Errorf("connected after a stop (%s)", mode)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := pgtest.All[string](t, db, "SELECT mode FROM n"); len(got) != 4 {
		t.Errorf("rows after four stops: %v", got)
	}
	if c.Port() != port {
		t.Errorf("port %d became %d", port, c.Port())
	}
	if got := pgtest.One[string](t, db, "SHOW fsync") + pgtest.One[string](t, db, "SHOW wal_level"); got != "onreplica" {
		t.Errorf("fsync and wal_level: %s", got)
	}
}

// terminateAll ends the sessions of the helpers' pools.
func terminateAll(t *testing.T, c *pgtest.Cluster) {
	conn, err := pgx.Connect(t.Context(), c.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnUnknownWayToStopIsAnError(t *testing.T) {
	t.Parallel()
	if err := pgtest.Shared(t).Stop("gently"); err == nil {
		t.Error("no error")
	}
}

func TestSetChangesASettingOfTheRunningServer(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	db := c.Database(t)
	if err := c.Set(t.Context(), "wal_sender_timeout", "2s"); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, 10*time.Second, "the new setting", func() bool {
		return pgtest.One[string](t, db, "SHOW wal_sender_timeout") == "2s"
	})
}

func TestABadSettingFailsTheStartWithTheServersWords(t *testing.T) {
	t.Parallel()
	_, err := pgtest.StartCluster(t.Context(), pgtest.Options{Settings: map[string]string{"wal_level": "everything"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "wal_level"`) {
		t.Errorf("error = %v", err)
	}
}

func TestAMissingPostgresIsAnErrorThatNamesThePlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := pgtest.StartCluster(t.Context(), pgtest.Options{BinDir: dir})
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error = %v", err)
	}
}

func TestCloseLeavesNoServerAndNoFiles(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	dir, addr := c.DataDir(), c.Addr()
	for range 2 { // the second finds nothing to do
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("something still listens")
	}
	if err := c.Start(t.Context()); err == nil {
		t.Error("a closed cluster starts")
	}
}

func TestCloseEndsAServerThatIsStopped(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{})
	if err := syscall.Kill(c.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAStandbyFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "14", "18"} { // those that are fetched have no pg_basebackup
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			followAndPromote(t, pgtest.NewCluster(t, pgtest.Options{Version: version}))
		})
	}
}

func followAndPromote(t *testing.T, primary *pgtest.Cluster) {
	t.Helper()
	db := primary.Database(t)
	db.Exec(t, "SELECT pg_create_physical_replication_slot('not_the_standbys', true)")
	standby := pgtest.NewStandby(t, primary, "standby_a")
	pgtest.Eventually(t, 20*time.Second, "a standby that streams", func() bool {
		return pgtest.One[int](t, db, "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'standby_a' AND state = 'streaming'") == 1
	})
	if err := primary.Set(t.Context(), "synchronous_standby_names", "standby_a"); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "CREATE TABLE n (i int); INSERT INTO n VALUES (1)")

	there := pgtest.NewPool(t, standby.DSN(db.Name))
	pgtest.Eventually(t, 20*time.Second, "the row on the standby", func() error {
		var i int
		return there.QueryRow(t.Context(), "SELECT i FROM n").Scan(&i)
	})
	if _, err := there.Exec(t.Context(), "INSERT INTO n VALUES (2)"); err == nil {
		t.Error("the standby takes writes")
	}
	if err := primary.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It has taken over the settings of its primary, and would wait for a standby of its own.
	if err := standby.Set(t.Context(), "synchronous_standby_names", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Exec(t.Context(), "INSERT INTO n VALUES (2)"); err != nil {
		t.Error(err)
	}
	if n := pgtest.One[int](t, db.On(t, standby), "SELECT count(*) FROM pg_replication_slots"); n != 0 {
		t.Errorf("%d slots have come along", n)
	}
}

func TestAVersionThatCannotBeFetchedIsNamed(t *testing.T) {
	t.Parallel()
	if _, err := pgtest.Fetch(t.Context(), "9", io.Discard); err == nil || !strings.Contains(err.Error(), "14 15 16 17 18") {
		t.Errorf("error %v", err)
	}
}

const ownerVariable = "PGTEST_OWNER"

// TestOwner isn't a test but the process that the next test kills.
func TestOwner(t *testing.T) {
	if os.Getenv(ownerVariable) == "" {
		return
	}
	c, err := pgtest.StartCluster(context.Background(), pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("addr=" + c.Addr() + "\n")
	select {}
}

func TestAServerEndsWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	pgtest.Shared(t) // fails or skips here when there is no Postgres
	owner := exec.Command(os.Args[0], "-test.run=^TestOwner$")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := out.Read(buf)
	addr, ok := strings.CutPrefix(strings.TrimSpace(string(buf[:n])), "addr=")
	if err != nil || !ok {
		t.Fatalf("the owner said %q (%v)", buf[:n], err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	pgtest.Eventually(t, 20*time.Second, "the end of the server", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}
