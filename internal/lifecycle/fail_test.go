package lifecycle

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestFailureCountsAnAttemptAndWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	e := f.insert(t, 1)[0]
	r := f.run(t, Config{Retry: Retry{MaxAttempts: 5, Initial: time.Minute, Multiplier: 3}}, nil)
	for attempt, pause := range []time.Duration{time.Minute, 3 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		e.Attempts = int32(attempt)
		r.Fail(e, errRetryable)
		r.drain(t)
		if s, _ := r.state(e); s.State != event.Waiting || s.DueIn != pause {
			t.Errorf("attempt %d: reported as %+v", attempt+1, s)
		}
		var attempts int
		var status, lastError string
		var due time.Duration
		f.QueryRow(t, `SELECT attempts, status, last_error, next_attempt_at - now() FROM outbox`).Scan(&attempts, &status, &lastError, &due)
		if attempts != attempt+1 || status != "PENDING" || lastError != "timeout: no answer" || due > pause || due < pause-patience {
			t.Errorf("attempt %d: the row has %d, %s, %q, due in %v", attempt+1, attempts, status, lastError, due)
		}
	}
	r.Fail(e, errRetryable)
	r.drain(t)
	if s, _ := r.state(e); s.State != event.Dead {
		t.Errorf("after the last attempt: %+v", s)
	}
	if n := f.metric(t, "events_dead_total", "attempts_exhausted"); n != 1 {
		t.Errorf("events_dead_total is %v", n)
	}
	f.wantIDs(t, "DEAD", 1)
}

func TestTheRowsOwnCountDecidesWhetherItIsDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 2)
	f.Exec(t, `UPDATE outbox SET attempts = 2 WHERE id = 2`)
	r := f.run(t, Config{Retry: Retry{MaxAttempts: 3, Initial: time.Hour}}, nil)
	r.Fail(all[0], errRetryable)
	r.Fail(all[1], errRetryable)
	r.want(t, event.Waiting, all[0])
	r.want(t, event.Dead, all[1])
}

func TestCase22_PermanentFailureIsDeadAtOnceWithItsReason(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 3)
	r := f.run(t, Config{Retention: time.Hour}, nil)
	r.Fail(all[1], errPermanent)
	r.Mark([]*event.Event{all[0], all[2]})
	r.want(t, event.Dead, all[1])
	r.want(t, event.Published, all[0], all[2])
	if n := f.metric(t, "events_dead_total", "message_too_large"); n != 1 {
		t.Errorf("events_dead_total is %v", n)
	}
	if !pgtest.One[bool](t, f.DB, `SELECT attempts = 1 AND next_attempt_at <= now() AND last_error LIKE 'message_too_large%' FROM outbox WHERE id = 2`) {
		t.Error("the row doesn't say when and of what it died")
	}
}

func TestFailureThatFindsNoRowIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	e, tx := f.commitLate(t)
	r := f.run(t, Config{Retry: Retry{Initial: time.Hour}}, nil)
	r.Fail(e, errRetryable)
	pgtest.Eventually(t, patience, "it is tried again", func() bool { return f.metric(t, "mark_retries_total") >= 2 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want(t, event.Waiting, e)
	if n := pgtest.One[int](t, f.DB, `SELECT attempts FROM outbox`); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

func TestTableWithoutColumnsForRetriesIsRememberedInMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload text, status text DEFAULT 'PENDING');
		INSERT INTO outbox (id, topic) VALUES (1, 't'), (2, 't')`)
	f.resolve(t, table.Spec{Table: "outbox"})
	all := events(1, 2)
	r := f.run(t, Config{Retention: time.Hour, Retry: Retry{MaxAttempts: 3, Initial: time.Minute}}, nil)
	for attempt := range 2 {
		for _, e := range all {
			r.Fail(e, errRetryable)
		}
		r.drain(t)
		want := time.Minute << attempt
		if s, _ := r.state(all[0]); s.State != event.Waiting || s.DueIn != want {
			t.Errorf("attempt %d: %+v", attempt+1, s)
		}
		if d := r.DueIn(all[0].ID); d > want || d < want-patience {
			t.Errorf("attempt %d: due in %v", attempt+1, d)
		}
	}
	r.Fail(all[0], errRetryable)
	r.Mark(all[1:])
	r.drain(t)
	f.wantIDs(t, "DEAD", 1)
	f.wantIDs(t, "PUBLISHED", 2)
	if n := len(r.memory.rows); n != 0 {
		t.Errorf("%d rows are still remembered", n)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := newMemory()
	for i := range int64(maxMemory + 10) {
		m.put(event.IntID(0, i), 1, time.Hour)
	}
	if n := len(m.rows); n != maxMemory {
		t.Errorf("%d rows are remembered", n)
	}
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{
			Initial:    time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
			Max:        time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "max")),
			Multiplier: rapid.Float64Range(0, 100).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(-1, 2).Draw(t, "jitter"),
		}.withDefaults()
		attempts := rapid.IntRange(-1, 100_000).Draw(t, "attempts")
		d := r.delay(attempts)
		if d < 0 || float64(d) > float64(r.Max)*(1+r.Jitter)+1 {
			t.Fatalf("%+v: %v", r, d)
		}
		exact := r
		exact.Jitter = 0
		base := exact.delay(attempts)
		if off := float64((d - base).Abs()); off > float64(base)*r.Jitter*(1+1e-9)+2 { // 2 ns: both are rounded
			t.Fatalf("%v is off %v by more than %v", d, base, r.Jitter)
		}
		if next := exact.delay(attempts + 1); r.Multiplier >= 1 && next < base {
			t.Fatalf("%v after %v", next, base)
		}
	})
}

func TestErrorTextIsWhatTheColumnTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, in := range []string{"", "plain", "nul\x00byte", "bad\xff\xfeutf8", strings.Repeat("ü", 5000), strings.Repeat("\xff", 5000)} {
		got := errorText(errors.New(in))
		if n := utf8.RuneCountInString(got); n > maxError || !utf8.ValidString(got) {
			t.Errorf("%d characters of %.20q", n, in)
		}
		if back := pgtest.One[string](t, f.DB, `SELECT $1::text`, got); back != got {
			t.Errorf("Postgres made %q of %q", back, got)
		}
	}
}
