package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// site is one place where an instance runs: its configuration, and the instance of the moment.
type site struct {
	*instance
	config, addr string
}

func (s *site) launch(t *testing.T) { s.instance = launch(t, s.config, s.addr) }

// sites configures instances for one database, one for each of settings; the table is made with the first.
func sites(t *testing.T, db *pgtest.DB, each ...settings) []*site {
	t.Helper()
	var all []*site
	for _, s := range each {
		config, addr := configFile(t, db, s)
		all = append(all, &site{config: config, addr: addr})
	}
	initialise(t, all[0].config)
	return all
}

// via is a proxy before the database, and the DSN that leads through it.
func via(t *testing.T, db *pgtest.DB) (*chaos.Proxy, string) {
	t.Helper()
	p, err := chaos.NewProxy(db.Cluster.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, db.DSNVia(p.Addr())
}

// awaitLeader waits until one of the instances is active and returns it and the others.
func awaitLeader(t *testing.T, within time.Duration, all ...*site) (leader *site, others []*site) {
	t.Helper()
	pgtest.Eventually(t, within, "an active instance", func() bool {
		for i, s := range all {
			if st, err := s.status(); err == nil && st.Leader {
				leader = s
				others = slices.Delete(slices.Clone(all), i, i+1)
				return true
			}
		}
		return false
	})
	return leader, others
}

// standsBy waits until the instance answers that it isn't active, and returns why.
func (r *instance) standsBy(within time.Duration) (reason string) {
	r.t.Helper()
	pgtest.Eventually(r.t, within, "an instance to stand by", func() (bool, error) {
		s, err := r.status()
		reason = s.Reason
		return err == nil && !s.Leader && s.Mode == "STANDBY" && s.Reason != "starting", err
	})
	return reason
}

// readiness is the answer of /readyz.
func (r *instance) readiness() (code int, reasons []string, err error) {
	var body struct {
		Reasons []string `json:"reasons"`
	}
	code, text, err := r.get("/readyz")
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	return code, body.Reasons, err
}

// watch asks the instances all the time who is active, and notes when two were at once. finish ends it.
func watch(t *testing.T, all ...*site) (finish func() time.Duration) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var since time.Time
	var longest time.Duration
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			active := 0
			for _, s := range all {
				if st, err := s.status(); err == nil && st.Leader {
					active++
				}
			}
			switch {
			case active < 2:
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			default:
				longest = max(longest, time.Since(since))
			}
		}
	})
	finish = sync.OnceValue(func() time.Duration {
		close(stop)
		wg.Wait()
		return longest
	})
	t.Cleanup(func() { finish() })
	return finish
}

// feed commits a row of one key each few milliseconds. finish ends it and returns the number of rows.
func feed(t *testing.T, db *pgtest.DB) (finish func() int) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	conn := db.Connect(t)
	n := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', $1)`, n+1); err != nil {
				t.Errorf("feed: %v", err)
				return
			}
			n++
		}
	})
	finish = sync.OnceValue(func() int {
		close(stop)
		wg.Wait()
		return n
	})
	t.Cleanup(func() { finish() })
	return finish
}

// holdBooks compares what came out of the instances, in the order of their terms, with the rows 1 to n of one key: each
// came out, the first time in order. It returns how many came out again.
func holdBooks(t *testing.T, n int, terms ...[]line) (again int) {
	t.Helper()
	seen := map[int64]bool{}
	last := int64(0)
	for _, lines := range terms {
		for _, l := range lines {
			if seen[l.ID] {
				again++
				continue
			}
			if l.ID < last {
				t.Errorf("row %d came out first after row %d", l.ID, last)
			}
			seen[l.ID], last = true, l.ID
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d rows came out", len(seen), n)
	}
	return again
}

func TestG1_TenTimesTheActiveInstanceIsKilledAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := sites(t, db, settings{yaml: toStdout}, settings{yaml: toStdout})
	for _, s := range all {
		s.launch(t)
	}
	active, others := awaitLeader(t, time.Minute, all...)
	other := others[0]
	var took []time.Duration
	var terms [][]line
	rows := 0
	for range 10 {
		active.awaitMode("LIVE")
		other.standsBy(time.Minute)
		before := len(other.events())
		rows++
		began := time.Now()
		active.kill()
		db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'a', $1)`, rows)
		pgtest.Eventually(t, time.Minute, "the next event", func() bool { return len(other.events()) > before })
		took = append(took, time.Since(began))
		terms = append(terms, active.events())
		active.launch(t)
		active, other = other, active
	}
	settledRows(t, db, time.Minute)
	terms = append(terms, active.events())
	if again := holdBooks(t, rows, terms...); again != 0 {
		t.Errorf("%d events came out again, although nothing was in flight when an instance was killed", again)
	}
	slices.Sort(took)
	t.Logf("from SIGKILL to the next event: median %v, longest %v", took[len(took)/2], took[len(took)-1])
	if took[len(took)-1] > 30*time.Second {
		t.Errorf("a takeover took %v", took[len(took)-1])
	}
}

func TestG10_AnInstanceThatIsStoppedHandsOverWithoutADuplicate(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := sites(t, db, settings{yaml: toStdout}, settings{yaml: toStdout}, settings{yaml: toStdout})
	for _, s := range all {
		s.launch(t)
	}
	two := watch(t, all...)
	active, _ := awaitLeader(t, time.Minute, all...)
	active.awaitMode("LIVE")
	finish := feed(t, db)
	var terms [][]line
	left := all
	for len(left) > 1 {
		active, others := awaitLeader(t, time.Minute, left...)
		before := len(active.events())
		pgtest.Eventually(t, time.Minute, "events of this term", func() bool { return len(active.events()) > before+20 })
		if code := active.terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		terms = append(terms, active.events())
		left = others
	}
	left[0].awaitMode("LIVE")
	n := finish()
	settledRows(t, db, time.Minute)
	terms = append(terms, left[0].events())
	if again := holdBooks(t, n, terms...); again != 0 {
		t.Errorf("%d events came out again", again)
	}
	if longest := two(); longest > 0 {
		t.Errorf("two instances were active at once for %v", longest)
	}
}

// The network of the active instance goes silent: no side is told. The server ends its lock session, its walsender still
// has the slot (case 10).
func TestCase10_ACutOffInstanceStepsDownBeforeAnotherBeginsWhichPollsUntilItHasTheSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	proxy, dsn := via(t, db)
	all := sites(t, db, settings{yaml: toStdout, dsn: dsn}, settings{yaml: toStdout})
	cut, other := all[0], all[1]
	cut.launch(t)
	cut.awaitMode("LIVE")
	other.launch(t)
	if why := other.standsBy(time.Minute); !strings.Contains(why, "another instance is active") {
		t.Errorf("stands by because: %s", why)
	}
	pgtest.Eventually(t, time.Minute, "the instance that stands by to be ready", func() (bool, error) {
		code, _, err := other.readiness()
		return code == 200, err
	})
	two := watch(t, all...)
	finish := feed(t, db)
	pgtest.Eventually(t, time.Minute, "events", func() bool { return len(cut.events()) > 100 })
	stalled := time.Now()
	proxy.Stall(chaos.Both)
	cut.standsBy(20 * time.Second)
	t.Logf("the cut off instance has stepped down after %v", time.Since(stalled))
	awaitLeader(t, time.Minute, other)
	t.Logf("the other is active after %v", time.Since(stalled))
	pgtest.Eventually(t, time.Minute, "events of the other", func() bool { return len(other.events()) > 100 })
	other.awaitMode("LIVE")
	t.Logf("and LIVE after %v", time.Since(stalled))
	proxy.Resume()
	cut.standsBy(time.Minute)
	n := finish()
	settledRows(t, db, time.Minute)
	again := holdBooks(t, n, cut.events(), other.events())
	t.Logf("%d rows, %d came out again", n, again)
	if longest := two(); longest > 0 {
		t.Errorf("two instances were active at once for %v", longest)
	}
	told := 0
	for l := range strings.Lines(other.log()) {
		if strings.Contains(l, "kind=slot_active") {
			told++
			if !strings.Contains(l, "cdc-relay") || !strings.Contains(l, "pid") {
				t.Errorf("the stale walsender isn't named: %s", l)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d lines tell of the slot that is in use", told)
	}
}

func TestG2_AnInstanceThatWasFrozenPublishesNothingOfTheTermOfAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := sites(t, db, settings{yaml: toStdout}, settings{yaml: toStdout})
	frozen, other := all[0], all[1]
	frozen.launch(t)
	frozen.awaitMode("LIVE")
	other.launch(t)
	other.standsBy(time.Minute)
	finish := feed(t, db)
	pgtest.Eventually(t, time.Minute, "events", func() bool { return len(frozen.events()) > 100 })
	if err := frozen.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	committed := pgtest.One[int64](t, db, `SELECT max(id) FROM outbox`)
	awaitLeader(t, time.Minute, other)
	t.Logf("the other is active after %v", time.Since(began))
	other.awaitMode("LIVE")
	if err := frozen.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	frozen.standsBy(time.Minute)
	two := watch(t, all...)
	n := finish()
	settledRows(t, db, time.Minute)
	first := frozen.events()
	// What was committed when it was frozen, and a little later by this test's own delay, may have been with the sink.
	if l := first[len(first)-1]; l.ID > committed+50 {
		t.Errorf("row %d came out of the instance that was frozen when row %d was committed", l.ID, committed)
	}
	again := holdBooks(t, n, first, other.events())
	t.Logf("%d rows, %d came out again", n, again)
	if again > 512 {
		t.Errorf("%d events came out again, more than one call of the sink", again)
	}
	if longest := two(); longest > 0 {
		t.Errorf("two instances were active at once for %v", longest)
	}
}

func TestG3_TwoRelaysWithSlotsOfTheirOwnOnOneTableAreToldApartByTheLock(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	all := sites(t, db, settings{yaml: toStdout}, settings{yaml: toStdout, env: nil})
	env := []string{"CDC_RELAY_REPLICATION_SLOT=" + db.Slot + "_b", "CDC_RELAY_REPLICATION_PUBLICATION=" + db.Publication + "_b"}
	all[0].launch(t)
	all[0].awaitMode("LIVE")
	all[1].instance = launch(t, all[1].config, all[1].addr, env...)
	why := all[1].standsBy(time.Minute)
	if !strings.Contains(why, "outbox") || !strings.Contains(why, "another instance is active") {
		t.Errorf("the second stands by because: %s", why)
	}
	if told := strings.Count(all[1].log(), "standing by"); told != 1 {
		t.Errorf("%d lines of the log tell that it stands by", told)
	}
	if n := pgtest.One[int](t, db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, db.Slot+"_b"); n != 0 {
		t.Error("the second has made a slot that nobody reads")
	}
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', 'a', to_json(i) FROM generate_series(1, 100) i`)
	all[0].expect(100)
	if code := all[0].terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all[1].awaitMode("LIVE")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', 'a', to_json(i) FROM generate_series(101, 200) i`)
	settledRows(t, db, time.Minute)
	if again := holdBooks(t, 200, all[0].events(), all[1].events()); again != 0 {
		t.Errorf("%d events came out again", again)
	}
	out, errs, code := command(t, env, "status", "-c", all[1].config)
	if code != 0 || !strings.Contains(out, fmt.Sprint(db.Slot, "_b")) {
		t.Logf("status: %d\n%s%s", code, out, errs)
	}
}
