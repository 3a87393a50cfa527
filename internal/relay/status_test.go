package relay

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/dispatch"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// ago is a time in the past.
func ago(d time.Duration) time.Time { return time.Now().Add(-d) }

// figures are those of one table.
func figures(f lifecycle.TableFigures) lifecycle.Snapshot {
	f.Table = "public.outbox"
	return lifecycle.Snapshot{Tables: []lifecycle.TableFigures{f}}
}

func TestG7_HealthFollowsProgress(t *testing.T) {
	t.Parallel()
	due := func(age time.Duration) lifecycle.Snapshot {
		return figures(lifecycle.TableFigures{Pending: 1, OldestPending: time.Minute, OldestDue: age})
	}
	gone := errors.New("connection refused")
	for name, test := range map[string]struct {
		change  func(c *Config, s *Status, sampled *sample)
		standby bool // instead of being active, because another instance is
		want    Health
	}{
		"at rest": {},
		"at rest for long": {
			change: func(_ *Config, s *Status, _ *sample) { s.Dispatch.Progress = ago(24 * time.Hour) },
		},
		"just started": {
			change: func(_ *Config, _ *Status, sampled *sample) { *sampled = sample{} },
			want:   Health{Reasons: []string{"starting: the database wasn't asked yet"}},
		},
		"the database has never answered": {
			change: func(_ *Config, _ *Status, sampled *sample) { *sampled = sample{err: gone} },
			want:   Health{Reasons: []string{"the database does not answer: connection refused"}},
		},
		"the database did not answer once": {
			change: func(_ *Config, _ *Status, sampled *sample) { sampled.err, sampled.at = gone, ago(20*time.Second) },
		},
		"the database has not answered for 31 s": {
			change: func(_ *Config, _ *Status, sampled *sample) { sampled.err, sampled.at = gone, ago(31*time.Second) },
			want:   Health{Reasons: []string{"the database does not answer: connection refused"}},
		},
		"standing by": {standby: true},
		"standing by without a database": {
			standby: true,
			change:  func(_ *Config, _ *Status, sampled *sample) { sampled.err, sampled.at = gone, ago(time.Minute) },
			want:    Health{Reasons: []string{"the database does not answer: connection refused"}},
		},
		"not active though nobody is": {
			change: func(_ *Config, s *Status, _ *sample) { s.Leader, s.Reason = false, "the lock is lost" },
			want:   Health{Reasons: []string{"not active: the lock is lost"}},
		},
		"the sink is down": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.SinkUp, s.Dispatch.SinkReason, s.Dispatch.InFlight = false, "no broker answers", 100
				s.Dispatch.Progress, sampled.tables = ago(time.Hour), due(time.Minute)
			},
			want: Health{Reasons: []string{"the sink is not available: no broker answers"}},
		},
		"work is in flight and something was settled 29 s ago": {
			change: func(_ *Config, s *Status, _ *sample) {
				s.Dispatch.InFlight, s.Dispatch.Progress = 3, ago(29*time.Second)
			},
		},
		"work is in flight and nothing was settled for 31 s": {
			change: func(_ *Config, s *Status, _ *sample) {
				s.Dispatch.InFlight, s.Dispatch.Progress = 3, ago(31*time.Second)
			},
			want: Health{Reasons: []string{"3 events are in flight and nothing was settled for 31s"}},
		},
		"a row is due and nothing is delivered": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.Progress, sampled.tables = ago(31*time.Second), due(time.Minute)
			},
			want: Health{Reasons: []string{"table public.outbox has a row that is due, 1m0s old, and nothing is being delivered"}},
		},
		"a row is due and was found a moment ago": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.Progress, sampled.tables = ago(time.Hour), due(39*time.Second) // the next poll may not have come yet
			},
		},
		"rows are due and others are delivered": {
			change: func(_ *Config, s *Status, sampled *sample) { sampled.tables = due(time.Minute) },
		},
		"an old row waits for its retry": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.Progress = ago(time.Minute)
				sampled.tables = figures(lifecycle.TableFigures{Pending: 1, OldestPending: time.Hour})
			},
		},
		"rows wait behind an event of their key that failed": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.Progress, s.Dispatch.Blocked, sampled.tables = ago(time.Hour), 2, due(time.Minute)
			},
			want: Health{Degraded: []string{"keys whose events wait for a retry, or for a decision about a DEAD row: 2"}},
		},
		"keys are blocked, and no pass came to its end for long": {
			change: func(_ *Config, s *Status, sampled *sample) {
				s.Dispatch.Progress, s.Dispatch.Blocked, sampled.tables = ago(time.Hour), 2, due(time.Minute)
				s.Dispatch.LastPass = ago(41 * time.Second)
			},
			want: Health{
				Reasons:  []string{"table public.outbox has a row that is due, 1m0s old, and nothing is being delivered"},
				Degraded: []string{"keys whose events wait for a retry, or for a decision about a DEAD row: 2"},
			},
		},
		"DEAD rows": {
			change: func(_ *Config, _ *Status, sampled *sample) {
				sampled.tables = figures(lifecycle.TableFigures{Dead: 1})
			},
			want: Health{Degraded: []string{"table public.outbox has DEAD rows: see cdc-relay dead list"}},
		},
		"replication is switched off": {
			change: func(c *Config, s *Status, _ *sample) { c.Stream, s.StreamWanted, s.Stream.Up = false, false, false },
			want:   Health{Degraded: []string{"replication.enabled is false: rows are delivered by polling"}},
		},
		"no stream": {
			change: func(_ *Config, s *Status, _ *sample) { s.Stream.Up, s.Stream.Reason = false, "wal_level is replica" },
			want:   Health{Degraded: []string{"no replication stream, rows are delivered by polling: wal_level is replica"}},
		},
		"dispatch has not moved for 119 s": {
			change: func(_ *Config, s *Status, _ *sample) { s.Dispatch.Beat = ago(119 * time.Second) },
		},
		"dispatch has not moved for 121 s": {
			change: func(_ *Config, s *Status, _ *sample) { s.Dispatch.Beat = ago(121 * time.Second) },
			want:   Health{Reasons: []string{"dispatch has not moved for 2m1s"}, Stuck: "dispatch has not moved for 2m1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Config{Stream: true, SampleEvery: 15 * time.Second, Dispatch: dispatch.Config{Interval: 10 * time.Second}}
			s := Status{Leader: true, StreamWanted: true, Dispatch: dispatch.Status{
				SinkUp: true, Progress: time.Now(), LastPass: time.Now(), Beat: time.Now(),
			}}
			s.Stream.Up = true
			sampled := sample{at: time.Now(), tables: figures(lifecycle.TableFigures{})}
			if test.standby {
				s = Status{Reason: "another instance is active", StreamWanted: true}
			}
			if test.change != nil {
				test.change(&c, &s, &sampled)
			}
			if diff := cmp.Diff(test.want, c.health(s, test.standby, sampled)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestG7_WithoutReplicationTheStatusSaysThatItPolls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.start("a", setup{config: func(cfg *Config) { cfg.Stream = false }})
	a.await("POLLING", func(s Status) bool { return s.Leader && s.Dispatch.Mode == dispatch.Polling })
	f.insert(10)
	f.awaitPublished(10)
	s := a.await("sampled", func(s Status) bool { return !s.SampledAt.IsZero() })
	if s.StreamWanted || s.Stream.Up || s.Slot.Exists || len(s.Health.Reasons) != 0 || len(s.Health.Degraded) != 1 {
		t.Errorf("status %+v", s)
	}
	if n := pgtest.One[int](t, f.DB, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, f.Slot); n != 0 {
		t.Error("there is a slot that nobody reads")
	}
}

// What waits behind a DEAD row of its key, as it was configured to, makes nobody restart the relay.
func TestG7_AKeyThatADeadRowBlocksIsDegradedAndPassesGoOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.broker.fail = func(id int64) error {
		if id == 1 {
			return &event.Error{Class: event.Permanent, Reason: "message_too_large"}
		}
		return nil
	}
	a := f.start("a", setup{config: func(cfg *Config) { cfg.Dispatch.BlockOnDead = true }})
	a.awaitLive()
	f.insert(5)
	want := []string{"table public.outbox has DEAD rows: see cdc-relay dead list", "keys whose events wait for a retry, or for a decision about a DEAD row: 1"}
	s := a.await("degraded", func(s Status) bool {
		return slices.Equal(slices.Sorted(slices.Values(s.Health.Degraded)), slices.Sorted(slices.Values(want)))
	})
	a.await("past another pass", func(now Status) bool { return now.Dispatch.LastPass.After(s.Dispatch.LastPass) })
	if s = a.Status(); len(s.Health.Reasons) != 0 || s.Dispatch.Blocked != 1 {
		t.Errorf("health %+v, %d keys are blocked", s.Health, s.Dispatch.Blocked)
	}
	if n := f.count(table.Pending); n != 4 {
		t.Errorf("%d rows are PENDING", n)
	}
}
