package relay

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

var discard = slog.New(slog.DiscardHandler)

// hold acquires a lease that is given back at the end of the test.
func hold(t *testing.T, dsn, slot string, outboxes ...*table.Outbox) *lease {
	t.Helper()
	l, err := acquire(t.Context(), dsn, slot, outboxes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.release)
	return l
}

// refused tries to acquire a lease that must not be had, and returns why.
func refused(t *testing.T, dsn, slot string, outboxes ...*table.Outbox) error {
	t.Helper()
	l, err := acquire(t.Context(), dsn, slot, outboxes)
	if err == nil {
		l.release()
		t.Fatal("the lease was acquired")
	}
	return err
}

func TestG6_ATableHasOneLeaseAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := hold(t, f.DSN, "a", f.tables...)
	if err := first.valid(); err != nil {
		t.Error(err)
	}
	// A slot of its own doesn't make a second relay one for another table.
	if err := refused(t, f.DSN, "b", f.tables...); !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "public.outbox") {
		t.Errorf("error = %v", err)
	}
	first.release()
	pgtest.Eventually(t, patience, "a lease after the release", func() error {
		l, err := acquire(t.Context(), f.DSN, "b", f.tables)
		if err == nil {
			l.release()
		}
		return err
	})
}

func TestG6_TablesAreLockedInOneOrderSoThatNobodyHoldsHalf(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "invoices", "letters")
	a, b, c := f.tables[0], f.tables[1], f.tables[2]
	first := hold(t, f.DSN, "a", a, b)
	// However they are listed, the first in order is tried first.
	if err := refused(t, f.DSN, "b", c, b, a); !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "public.outbox") {
		t.Errorf("error = %v", err)
	}
	hold(t, f.DSN, "c", c)
	if err := refused(t, f.DSN, "b", b, c); !strings.Contains(err.Error(), "public.invoices") {
		t.Errorf("error = %v", err)
	}
	first.release()
	pgtest.Eventually(t, patience, "the tables to be free", func() error {
		l, err := acquire(t.Context(), f.DSN, "b", []*table.Outbox{b, a})
		if err == nil {
			l.release()
		}
		return err
	})
}

// Two relays for different tables that share a slot by oversight would take it away from each other for ever.
func TestG6_ASlotServesOneRelayAndTheOtherIsToldToTakeAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "invoices")
	hold(t, f.DSN, "shared", f.tables[0])
	err := refused(t, f.DSN, "shared", f.tables[1])
	if errors.Is(err, errTaken) || !strings.Contains(err.Error(), "slot shared") || !strings.Contains(err.Error(), "replication.slot") {
		t.Errorf("error = %v", err)
	}
	hold(t, f.DSN, "own", f.tables[1])
	other := newFixture(t)
	hold(t, other.DSN, "", other.tables...)
	third := newFixture(t)
	hold(t, third.DSN, "", third.tables...) // without replication there is no slot to share
}

func TestG6_ALeaseIsRenewedWhileTheServerAnswers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := hold(t, f.DSN, f.Slot, f.tables...)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- l.keep(ctx, discard) }()
	until := l.until.Load()
	pgtest.Eventually(t, patience, "the first renewal", func() bool { return l.until.Load() > until })
	if err := l.valid(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-kept; err != nil {
		t.Errorf("keep: %v", err)
	}
}

// This is what a stopped process and a silent network have in common: the server hears nothing.
func TestG6_ASilentLeaseIsOverBeforeAnotherInstanceCanHaveIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	silent := hold(t, f.DSN, f.Slot, f.tables...)
	overFirst := false
	pgtest.Eventually(t, patience, "another lease", func() error {
		over := silent.valid() != nil
		l, err := acquire(t.Context(), f.DSN, f.Slot, f.tables)
		if err != nil {
			if !errors.Is(err, errTaken) {
				t.Errorf("error = %v", err)
			}
			overFirst = overFirst || over
			return err
		}
		l.release()
		if !over {
			t.Error("another instance has the lease while the first takes its own for valid")
		}
		return nil
	})
	if !overFirst {
		t.Error("the lease was not over for a while when another could have it")
	}
}

func TestG6_ALeaseIsLostWhenItsSessionIsTerminated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := hold(t, f.DSN, f.Slot, f.tables...)
	if n := f.terminateLockSessions(); n != 1 {
		t.Fatalf("%d sessions hold the lock", n)
	}
	if err := l.keep(t.Context(), discard); !errors.Is(err, errLeaseOver) || !strings.Contains(err.Error(), "administrator command") {
		t.Errorf("keep: %v", err)
	}
	if l.valid() == nil {
		t.Error("the lost lease is valid")
	}
}

func TestG6_ALeaseIsLostWhenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := f.proxy()
	l := hold(t, f.DSNVia(proxy.Addr()), f.Slot, f.tables...)
	proxy.Stall(chaos.Both)
	if err := l.keep(t.Context(), discard); !errors.Is(err, errLeaseOver) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("keep: %v", err)
	}
	if l.valid() == nil {
		t.Error("the lost lease is valid")
	}
	if err := refused(t, f.DSN, f.Slot, f.tables...); !errors.Is(err, errTaken) {
		t.Errorf("the lease was lost when another could have it already: %v", err)
	}
}

func TestTheLockIsTakenOnThePrimaryOnly(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.Options{})
	f := fixtureOf(t, primary.Database(t))
	standby := pgtest.NewStandby(t, primary, "standby")
	err := refused(t, standby.DSN(f.Name), f.Slot, f.tables...)
	if errors.Is(err, errTaken) || !strings.Contains(err.Error(), "primary") || !strings.Contains(err.Error(), "postgres.dsn") {
		t.Errorf("error = %v", err)
	}
	both := strings.Replace(f.DSN, primary.Addr(), standby.Addr()+","+primary.Addr(), 1)
	hold(t, both, f.Slot, f.tables...)
	if err := refused(t, f.DSN, f.Slot, f.tables...); !errors.Is(err, errTaken) {
		t.Errorf("the lock is not on the primary: %v", err)
	}
}

func TestG9_AWrongDSNForTheLockDoesNotLeakItsPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://relay:hunter2@localhost:port/shop",
		"host=localhost password='hunter2 port=1",
		"postgres://relay:hunter2@127.0.0.1:1/shop?connect_timeout=1",
	} {
		err := refused(t, dsn, "")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if !strings.Contains(err.Error(), "postgres.dsn") || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error isn't one line with what to look at: %v", err)
		}
	}
}

// A pooler refuses the parameters that the lock's session needs, and could not keep the lock either.
func TestAPoolerBeforeTheLockIsNamed(t *testing.T) {
	t.Parallel()
	err := unreachable(&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: idle_session_timeout"})
	if !strings.Contains(err.Error(), "postgres.direct_dsn") || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("error = %v", err)
	}
}

func (f *fixture) proxy() *chaos.Proxy {
	f.t.Helper()
	p, err := chaos.NewProxy(f.Cluster.Addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return p
}
