package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestG6_OneOfTwoInstancesIsActiveAndTheOtherIsReadyToTakeOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{})
	since := a.awaitLive().LeaderSince
	b := f.start("b", setup{})
	b.awaitStandby("another instance is active")
	f.insert(100)
	f.awaitPublished(100)
	s := b.await("ready", func(s Status) bool { return len(s.Health.Reasons) == 0 && !s.SampledAt.IsZero() })
	if !strings.Contains(s.Reason, "public.outbox") || len(s.Health.Degraded) != 0 || s.Health.Stuck != "" || !s.StreamWanted {
		t.Errorf("status of the instance that stands by: %+v", s)
	}
	if n := len(b.log.lines("level=INFO", "standing by")); n != 1 {
		t.Errorf("%d lines of the log tell that it stands by", n)
	}
	s = a.Status()
	if len(s.Health.Reasons)+len(s.Health.Degraded) != 0 || s.Reason != "" || s.LeaderSince != since || !s.Stream.Up || s.Published != 100 {
		t.Errorf("status of the active instance: %+v", s)
	}
	for _, want := range []struct {
		i      *instance
		leader float64
		mode   string
	}{{a, 1, "LIVE"}, {b, 0, "STANDBY"}} {
		if want.i.metric("leader") != want.leader || want.i.metric("mode", want.mode) != 1 || want.i.metric("mode") != 1 {
			t.Errorf("metrics of %s: leader %v, mode %s %v", want.i.name, want.i.metric("leader"), want.mode, want.i.metric("mode", want.mode))
		}
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if a.metric("leader") != 0 || a.metric("mode", "STANDBY") != 1 {
		t.Error("the metrics of a stopped instance say that it is active")
	}
	b.awaitLive()
	f.insert(100)
	f.awaitPublished(200)
	if first, again := f.broker.delivered(); len(first) != 200 || again != 0 || !slices.IsSorted(first) {
		t.Errorf("%d rows were delivered, %d of them again, sorted: %v", len(first), again, slices.IsSorted(first))
	}
}

func TestG6_TwoRelaysWithSlotsOfTheirOwnShareNoTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox", "invoices")
	own := func(cfg *Config) { cfg.Replication.Slot += "_own"; cfg.Replication.Publication += "_own" }
	a := f.start("a", setup{tables: f.tables[:1]})
	a.awaitLive()
	same := f.start("same table", setup{tables: f.tables[:1], config: own})
	same.awaitStandby("another instance is active")
	invoices, err := table.Resolve(t.Context(), f.Connect(t), 0, table.Spec{Table: "invoices"})
	if err != nil {
		t.Fatal(err)
	}
	sharing := f.start("shared slot", setup{tables: []*table.Outbox{invoices}})
	s := sharing.awaitStandby("slot of its own")
	if len(s.Health.Reasons) == 0 {
		t.Error("a relay whose tables nobody serves says that it is ready")
	}
	other := f.start("other table", setup{tables: []*table.Outbox{invoices}, config: func(cfg *Config) {
		cfg.Replication.Slot += "_other"
		cfg.Replication.Publication += "_other"
	}})
	other.awaitLive()
	if !a.Status().Leader {
		t.Error("the first relay is no longer active")
	}
}

// The lock's session is ended by somebody while rows are on their way. Who was active must not go on, whoever is next.
func TestG6_WhenTheLockSessionIsTerminatedOneInstanceGoesOnAndNothingIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.broker.pause = time.Millisecond
	a := f.start("a", setup{config: slowly})
	a.awaitLive()
	b := f.start("b", setup{config: slowly})
	b.awaitStandby("another instance is active")
	f.insert(4000)
	pgtest.Eventually(t, patience, "the first deliveries", func() bool { return f.count(table.Published) > 100 })
	if n := f.terminateLockSessions(); n != 1 {
		t.Fatalf("%d sessions hold the lock", n)
	}
	pgtest.Eventually(t, patience, "the lock to be missed", func() bool { return len(a.log.lines("level=WARN", "the lock is lost")) > 0 })
	f.awaitPublished(4000)
	first, again := f.broker.delivered()
	if len(first) != 4000 || again > inFlightSlowly {
		t.Errorf("%d rows were delivered, %d of them again", len(first), again)
	}
	if a.Status().Leader == b.Status().Leader {
		t.Errorf("a is active: %v, b is active: %v", a.Status().Leader, b.Status().Leader)
	}
	b.awaitLeader() // it waited for it, while a had first to wind its term up
	if a.metric("in_flight_events") != 0 || a.metric("in_flight_bytes") != 0 {
		t.Errorf("an instance that stands by shows %v events in flight", a.metric("in_flight_events"))
	}
}

const inFlightSlowly = 1000

// slowly has one row at a time on its way, so that there is something left to publish when the lock is lost.
func slowly(cfg *Config) {
	cfg.Dispatch.Lanes, cfg.Dispatch.BatchRows, cfg.Dispatch.MaxInFlight = 1, 1, inFlightSlowly
}

// alternations is how often the caller of the broker changed.
func (b *broker) alternations() (n int) {
	calls := b.callers()
	for i := 1; i < len(calls); i++ {
		if calls[i] != calls[i-1] {
			n++
		}
	}
	return n
}

func TestG6_AnInstanceThatIsCutOffStopsPublishingBeforeAnotherBegins(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*chaos.Proxy){
		"silence": func(p *chaos.Proxy) { p.Stall(chaos.Both) },
		"resets":  func(p *chaos.Proxy) { p.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.broker.pause = 20 * time.Millisecond // more than enough to do for the time of a takeover
			proxy := f.proxy()
			a := f.start("a", setup{dsn: f.DSNVia(proxy.Addr()), config: slowly})
			a.awaitLive()
			b := f.start("b", setup{config: slowly})
			b.awaitStandby("another instance is active")
			f.insert(2000)
			pgtest.Eventually(t, patience, "the first deliveries", func() bool { return f.count(table.Published) > 10 })
			cut(proxy)
			b.awaitLeader()
			if s := a.Status(); s.Leader || len(s.Health.Reasons) == 0 {
				t.Errorf("the instance that was cut off: leader %v, %+v", s.Leader, s.Health)
			}
			f.broker.set(func(b *broker) { b.pause = 0 })
			f.awaitPublished(2000)
			if n := f.broker.alternations(); n != 1 {
				t.Errorf("the broker's caller changed %d times", n)
			}
			if first, again := f.broker.delivered(); len(first) != 2000 || again > inFlightSlowly {
				t.Errorf("%d rows were delivered, %d of them again", len(first), again)
			}
			if a.metric("leader") != 0 {
				t.Error("the metrics of the instance that was cut off say that it is active")
			}
			proxy.Resume()
			if err := proxy.Restore(); err != nil {
				t.Fatal(err)
			}
			s := a.awaitStandby("another instance is active")
			a.await("ready to take over again", func(s Status) bool { return len(s.Health.Reasons) == 0 })
			if s.Leader {
				t.Error("both are active")
			}
		})
	}
}

func TestG1G6_PostgresRestartedUnderTheRelayLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, pgtest.Options{})
	f := fixtureOf(t, cluster.Database(t))
	a := f.start("a", setup{})
	a.awaitLive()
	for round, mode := range []string{"immediate", "fast"} {
		f.insert(200)
		if err := cluster.Stop(mode); err != nil {
			t.Fatal(err)
		}
		s := a.await("not ready", func(s Status) bool { return !s.Leader && len(s.Health.Reasons) > 0 })
		if text := fmt.Sprint(s.Health.Reasons); !strings.Contains(text, "not active: ") {
			t.Errorf("reasons: %s", text)
		}
		if err := cluster.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = a.awaitLive()
		f.insert(200)
		f.awaitPublished(400 * (round + 1))
		a.await("ready", func(s Status) bool { return len(s.Health.Reasons)+len(s.Health.Degraded) == 0 })
	}
	if first, _ := f.broker.delivered(); len(first) != 800 {
		t.Errorf("%d rows were delivered", len(first))
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// Another instance may begin soon after the lock is lost: a call of the sink that is under way is not waited for.
func TestG6_WhenTheLockIsLostCallsOfTheSinkAreCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{config: func(cfg *Config) { cfg.StopTimeout = time.Hour }})
	a.awaitLive()
	release := f.broker.holdCalls()
	defer release()
	f.insert(10)
	pgtest.Eventually(t, patience, "a call of the sink", func() bool { return f.broker.heldCalls() > 0 })
	since := a.Status().LeaderSince
	if n := f.terminateLockSessions(); n != 1 {
		t.Fatalf("%d sessions hold the lock", n)
	}
	a.await("active again", func(s Status) bool { return s.Leader && s.LeaderSince.After(since) })
	release()
	f.awaitPublished(10)
	if _, again := f.broker.delivered(); again != 0 {
		t.Errorf("%d rows were delivered again, though no call had succeeded", again)
	}
	if n := len(a.log.lines("standing by", "the lock is lost")); n != 1 {
		t.Errorf("%d lines of the log tell of the lost lock", n)
	}
	if found := a.log.lines("standing by", "settled"); len(found) > 0 {
		t.Errorf("a lost lock is told together with its consequences: %s", found)
	}
}

// A table that the relay can't write to, and what is to be done about it, is told before anything is published.
func TestG1G7_NothingIsPublishedThatCannotBeMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	role := "reader_" + f.Name
	f.Exec(t, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN REPLICATION; GRANT SELECT ON outbox TO %[1]s`, role))
	t.Cleanup(func() { f.Exec(t, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role)) })
	f.insert(5)
	a := f.start("a", setup{dsn: f.DSNAs(role), config: func(cfg *Config) { cfg.Replication.DSN = f.DSN }})
	grant := fmt.Sprintf(`GRANT UPDATE, DELETE ON "public"."outbox" TO %q;`, role)
	a.await("not ready, with the remedy", func(s Status) bool {
		return !s.Leader && len(s.Health.Reasons) == 1 && strings.Contains(s.Health.Reasons[0], grant)
	})
	b := f.start("b", setup{})
	b.awaitLeader() // an instance that can't be active doesn't keep another from it
	f.awaitPublished(5)
	if n := len(a.log.lines("level=WARN", "marked (UPDATE)")); n != 1 {
		t.Errorf("%d lines of the log tell of it", n)
	}
	if slices.Contains(f.broker.callers(), "a") {
		t.Error("the instance has published")
	}
	f.Exec(t, grant)
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	a.awaitLive()
	f.insert(5)
	f.awaitPublished(10)
}

// A process that was stopped may come back with a lease that is over, before it could notice.
func TestG6_NothingIsPublishedWithoutAValidLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{})
	a.awaitLive()
	l := a.active.Load().lease
	var calls, wrong int // guarded by the broker
	f.broker.set(func(b *broker) {
		b.fail = func(int64) error {
			if calls++; l.valid() != nil {
				wrong++
			}
			return nil
		}
	})
	l.until.Store(0) // until the next heartbeat
	if a.Status().Leader {
		t.Error("the instance calls itself active")
	}
	f.insert(10)
	f.awaitPublished(10)
	f.broker.set(func(*broker) {
		if calls < 10 || wrong > 0 {
			t.Errorf("%d of %d events were published without a valid lease", wrong, calls)
		}
	})
}
