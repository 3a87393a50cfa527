package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// proxied leads the fixture's stream through a proxy.
func proxied(t *testing.T, f *fixture) *chaos.Proxy {
	t.Helper()
	p, err := chaos.NewProxy(f.Cluster.Addr())
	do(t, err)
	t.Cleanup(func() { do(t, p.Close()) })
	f.cfg.DSN = f.DSNVia(p.Addr())
	return p
}

func TestCase08_TheWatchdogGivesUpAStalledConnection(t *testing.T) {
	t.Parallel()
	for name, direction := range map[string]chaos.Direction{"to the relay": chaos.ToClient, "to the server": chaos.ToServer, "both": chaos.Both} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{}).Database(t))
			f.cfg.Watchdog = time.Second
			proxy := proxied(t, f)
			f.run(t)
			f.up(t, 1)
			proxy.Stall(direction)
			pgtest.Eventually(t, patience, "the stream is given up", func() bool { return errors.Is(f.recv.lastLost(), errSilent) })
			proxy.Resume()
			f.up(t, 2)
			f.insert(t, "one")
			f.has(t, "one")
		})
	}
}

func TestAnIdleButHealthyStreamIsKeptByTheWatchdog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{}).Database(t))
	f.cfg.Watchdog = time.Second
	f.run(t)
	f.up(t, 1)
	begun := time.Now()
	pgtest.Eventually(t, patience, "several times the watchdog", func() bool { return time.Since(begun) > 4*time.Second })
	if st := f.stream.State(); !st.Up || f.recv.starts() != 1 || st.LastMessageAge > time.Second {
		t.Errorf("%d starts, state %+v, lost %v", f.recv.starts(), st, f.recv.lastLost())
	}
}

func TestAMessageInManyPiecesIsPutTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	proxy := proxied(t, f)
	f.run(t)
	f.up(t, 1)
	proxy.Limit(200 << 10) // the deadline of the loop passes many times within the message
	f.Exec(t, `INSERT INTO outbox (topic, payload) SELECT 't', repeat(g::text, 100000) FROM generate_series(1, 3) g`)
	pgtest.Eventually(t, patience, "3 events", func() bool {
		f.stream.RequestPosition() // and wakes it, too
		return f.recv.count() == 3
	})
	for i, e := range f.recv.events {
		if len(e.Payload) != 100000 || e.Payload[0] != '1'+byte(i) {
			t.Errorf("payload %d has %d bytes", i, len(e.Payload))
		}
	}
	if n := f.recv.starts(); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func TestACutConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	proxy := proxied(t, f)
	f.run(t)
	f.up(t, 1)
	proxy.Cut()
	f.reason(t, "the replication connection failed")
	do(t, proxy.Restore())
	f.up(t, 2)
	f.insert(t, "one")
	f.has(t, "one")
}

func TestAStopDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	proxy := proxied(t, f)
	stop := f.run(t)
	f.up(t, 1)
	proxy.Stall(chaos.Both)
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
	proxy.Resume()
}
