package relay

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
)

func TestG7_TheSampleTellsOfTheTableAndTheSlotOnEveryInstance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{})
	a.awaitLive()
	b := f.start("b", setup{})
	b.awaitStandby("another instance is active")
	f.broker.set(func(b *broker) { b.away = true })
	f.insert(7)
	for _, i := range []*instance{a, b} {
		s := i.await("told of the rows", func(s Status) bool { return s.Tables.PendingRows == 7 && s.Slot.Active })
		if !s.Slot.Exists || s.Slot.WALStatus != "reserved" || s.Tables.Tables[0].OldestPending <= 0 || time.Since(s.SampledAt) > patience {
			t.Errorf("%s: %+v", i.name, s)
		}
		if i.metric("pending_rows") != 7 || i.metric("oldest_pending_age_seconds") <= 0 || i.metric("slot_active") != 1 {
			t.Errorf("metrics of %s: %v rows, %v s, %v", i.name, i.metric("pending_rows"), i.metric("oldest_pending_age_seconds"), i.metric("slot_active"))
		}
	}
	f.broker.set(func(b *broker) { b.away = false })
	f.awaitPublished(7)
}

// Whether the database refuses or is silent, it is said once, health follows, and all is well again when it is back.
func TestG7_ADatabaseThatDoesNotAnswerIsLoggedOnceAndMakesAStandbyNotReady(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*chaos.Proxy){
		"refuses":   func(p *chaos.Proxy) { p.Cut() },
		"is silent": func(p *chaos.Proxy) { p.Stall(chaos.Both) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.start("active", setup{}).awaitLeader()
			proxy := f.proxy()
			b := f.start("b", setup{dsn: f.DSNVia(proxy.Addr())})
			ready := func(s Status) bool { return !s.SampledAt.IsZero() && len(s.Health.Reasons) == 0 }
			b.await("ready", ready)
			told := func() int { return len(b.log.lines("level=WARN", "look at the tables and the slot failed")) }
			before := told()
			fault(proxy)
			last := b.await("not ready", func(s Status) bool { return len(s.Health.Reasons) > 0 }).SampledAt
			b.await("told twice", func(Status) bool { return time.Since(last) > 2*time.Second })
			if n := told() - before; n != 1 {
				t.Errorf("%d lines of the log tell of it", n)
			}
			proxy.Resume()
			if err := proxy.Restore(); err != nil {
				t.Fatal(err)
			}
			b.await("ready again", func(s Status) bool { return ready(s) && s.SampledAt.After(last) })
		})
	}
}
