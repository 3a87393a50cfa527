package fallbackpoll

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// A transaction has two rows of one key, with ids on both sides of a page's end, and becomes visible between the pages.
// The pass must bring neither: the later one alone would overtake.
func TestG3_AllPagesOfAPassShowOneMoment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	tx, ctx := f.begin(t)
	add := func(key string) {
		t.Helper()
		if _, err := tx.Exec(ctx, `INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, '1')`, key); err != nil {
			t.Fatal(err)
		}
	}
	add("k") // 1
	f.insert(t, "outbox", 2)
	add("k") // 4
	f.insert(t, "outbox", 1)
	p := f.poller(t, Config{Batch: 2})
	if _, err := p.BeginPass(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	first := next(t, p)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2", "3", "5"}, append(ids(first), ids(rest(t, p)...)...)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(sequence(1, 5), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}

// A snapshot holds back vacuum, so it has an end, even if the pass has none yet.
func TestG8_APassIsCutWhenItsSnapshotIsOldOrGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 5)
	p := f.poller(t, Config{Batch: 2})
	now := time.Now()
	p.now = func() time.Time { return now }
	held := func() int {
		return pgtest.One[int](t, f.DB, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`)
	}
	for _, end := range []func(){
		func() { now = now.Add(snapshotTime) },
		func() { p.EndPass(t.Context()) },
	} {
		if _, err := p.BeginPass(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if page := next(t, p); len(page.Events) != 2 || page.Last || page.Cut {
			t.Fatalf("first page: %+v", page)
		}
		if held() != 1 {
			t.Fatal("the pass holds no snapshot: the test does not see what it is for")
		}
		end()
		if page := next(t, p); len(page.Events) != 0 || !page.Last || !page.Cut {
			t.Errorf("got %+v, want an empty page that is cut", page)
		}
		if held() != 0 {
			t.Error("the snapshot is still held")
		}
		if page := next(t, p); len(page.Events) != 0 || !page.Last || page.Cut {
			t.Errorf("after the pass: %+v", page)
		}
	}
	if diff := cmp.Diff(sequence(1, 5), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
	if held() != 0 {
		t.Error("the snapshot of a pass that is through is still held")
	}
}

// A pass whose reading alone takes too long would be cut for ever, so it gets more time; the next one begins modestly.
func TestASnapshotIsKeptLongerWhenReadingNeedsIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 5)
	p := f.poller(t, Config{Batch: 2})
	now := time.Now()
	cut := func(reading time.Duration) {
		t.Helper()
		if _, err := p.BeginPass(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		next(t, p)
		p.moment.reading = reading
		now = now.Add(p.moment.limit)
		if page := next(t, p); !page.Cut {
			t.Fatalf("got %+v", page)
		}
	}
	p.now = func() time.Time { return now }
	cut(snapshotTime / 4) // dispatch took the time
	if p.moment.limit != snapshotTime {
		t.Errorf("limit %v after a pass that waited for dispatch", p.moment.limit)
	}
	cut(snapshotTime)
	if p.moment.limit != 2*snapshotTime {
		t.Errorf("limit %v after a pass that was all reading", p.moment.limit)
	}
	for range 20 {
		cut(p.moment.limit)
	}
	if p.moment.limit != longestSnapshot {
		t.Errorf("limit %v, want no more than %v", p.moment.limit, longestSnapshot)
	}
	pages(t, p)
	if p.moment.limit != snapshotTime {
		t.Errorf("limit %v after a complete pass", p.moment.limit)
	}
}

// A broken connection ends the pass, and the next one has a snapshot again.
func TestAPassIsOverWhenItsConnectionBreaks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, "outbox", 5)
	p := f.poller(t, Config{Batch: 2})
	if _, err := p.BeginPass(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	next(t, p)
	f.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`)
	if _, err := p.NextPage(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if page := next(t, p); !page.Last || len(page.Events) != 0 {
		t.Errorf("after an error: %+v", page)
	}
	if diff := cmp.Diff(sequence(1, 5), ids(pages(t, p)...)); diff != "" {
		t.Error(diff)
	}
}
