package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// begin opens a transaction on a connection of its own.
func (f *fixture) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := f.Connect(t).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const insertRow = `INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', $1)`

func TestG1_CommittedRowsArriveOnceInCommitOrderAndRolledBackOnesNever(t *testing.T) {
	t.Parallel()
	for _, text := range []bool{false, true} {
		t.Run(fmt.Sprintf("text %v", text), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, pgtest.Database(t))
			f.cfg.Text = text
			f.run(t)
			f.up(t, 1)
			ctx := context.Background()

			first, second, rolledBack := f.begin(t), f.begin(t), f.begin(t)
			exec := func(tx pgx.Tx, payload string) {
				t.Helper()
				_, err := tx.Exec(ctx, insertRow, payload)
				do(t, err)
			}
			exec(first, "begun first")
			exec(second, "committed first")
			exec(rolledBack, "rolled back")
			do(t, second.Commit(ctx))
			do(t, rolledBack.Rollback(ctx))
			do(t, first.Commit(ctx))

			f.Exec(t, `INSERT INTO outbox (topic, payload) VALUES ('t', 'multi 1'), ('t', 'multi 2')`)

			_, err := f.Connect(t).CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"topic", "payload"},
				pgx.CopyFromRows([][]any{{"t", "copy 1"}, {"t", "copy 2"}}))
			do(t, err)

			saved := f.begin(t)
			exec(saved, "before the savepoint")
			inner, err := saved.Begin(ctx)
			do(t, err)
			exec(inner, "rolled back to the savepoint")
			do(t, inner.Rollback(ctx))
			inner, err = saved.Begin(ctx)
			do(t, err)
			exec(inner, "within a released savepoint")
			do(t, inner.Commit(ctx))
			do(t, saved.Commit(ctx))

			for _, name := range []string{"kept", "discarded"} {
				prepared := f.begin(t)
				exec(prepared, "prepared and "+name)
				_, err = prepared.Exec(ctx, "PREPARE TRANSACTION '"+f.Name+name+"'")
				do(t, err)
				do(t, prepared.Rollback(ctx))
			}
			f.insert(t, "after the prepare")
			f.Exec(t, "ROLLBACK PREPARED '"+f.Name+"discarded'")
			f.Exec(t, "COMMIT PREPARED '"+f.Name+"kept'")

			f.Exec(t, `INSERT INTO outbox (topic, payload, status) VALUES ('t', 'not pending', 'PUBLISHED')`)
			f.Exec(t, `UPDATE outbox SET status = 'PUBLISHED'`)
			f.Exec(t, `DELETE FROM outbox WHERE payload = 'multi 1'`)
			f.Exec(t, `TRUNCATE outbox`)
			f.insert(t, "last")
			f.has(t, "committed first", "begun first", "multi 1", "multi 2", "copy 1", "copy 2", "before the savepoint",
				"within a released savepoint", "after the prepare", "prepared and kept", "last")
		})
	}
}

func TestEventsCarryWhatTheStreamKnows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	other := f.createOutbox(t, `"Order Events"`)
	f.run(t)
	f.up(t, 1)
	before := time.Now()
	var xid uint32
	f.QueryRow(t, `WITH i AS (INSERT INTO outbox (id, topic, key, payload, headers, event_type) VALUES (7, 't', 'k', 'p', '{"a": "b"}', 'made') RETURNING 1)
		SELECT txid_current()::text::bigint & 4294967295 FROM i`).Scan(&xid)
	f.Exec(t, `INSERT INTO "Order Events" (id, topic, next_attempt_at) VALUES (8, 't', now() + interval '1 hour')`)
	pgtest.Eventually(t, patience, "2 events", func() bool { return f.recv.count() == 2 })
	a, b := f.recv.events[0], f.recv.events[1]
	if a.ID != event.IntID(0, 7) || b.ID != event.IntID(other.Index, 8) {
		t.Errorf("ids %+v and %+v", a.ID, b.ID)
	}
	if a.Path != event.WAL || a.Xid != xid || a.Topic != "t" || a.Key != "k" || !a.HasKey || a.Type != "made" || len(a.Headers) != 1 || a.Returned {
		t.Errorf("event %+v, xid %d", a, xid)
	}
	if a.Lag < 0 || a.Lag > time.Minute || a.ReceivedAt.Before(before) || a.ReceivedAt.After(time.Now()) {
		t.Errorf("lag %v, received at %v", a.Lag, a.ReceivedAt)
	}
	if a.DueIn > 0 || b.DueIn < 59*time.Minute || b.DueIn > time.Hour {
		t.Errorf("due in %v and %v", a.DueIn, b.DueIn)
	}
}

func TestCase39_RowsOfPartitionsArriveUnderTheRoot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, partitionedOutbox)
	parted := f.adopt(t, table.Spec{Table: "parted"})
	f.run(t)
	f.up(t, 1)
	f.Exec(t, `INSERT INTO parted (topic, payload) VALUES ('t', 'through the root')`)
	f.Exec(t, `INSERT INTO parted_now (id, topic, payload) VALUES (1000, 't', 'into the partition')`)
	f.Exec(t, `CREATE TABLE parted_future PARTITION OF parted FOR VALUES FROM ('3000-01-01') TO ('4000-01-01');
		INSERT INTO parted (topic, payload, created_at) VALUES ('t', 'into a new partition', '3500-01-01')`)
	f.has(t, "through the root", "into the partition", "into a new partition")
	for _, e := range f.recv.events {
		if e.ID.Table != parted.Index {
			t.Errorf("table %d", e.ID.Table)
		}
	}
}

func TestCase41_ColumnsMayComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	f.insert(t, "before")
	f.Exec(t, `ALTER TABLE outbox ADD tenant text DEFAULT 'x'`)
	f.insert(t, "with another column")
	f.Exec(t, `ALTER TABLE outbox DROP tenant, DROP last_error`)
	f.insert(t, "without")
	f.has(t, "before", "with another column", "without")
	if n := f.recv.starts(); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func TestCase12_RollbackToNestedSavepointsInALargeTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.cfg.WorkMem = "64kB"
	f.run(t)
	f.up(t, 1)
	// Each third block of 1000 rows is rolled back: alone, or with the block around it.
	f.Exec(t, `CREATE FUNCTION fill() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 0..99 LOOP
				BEGIN
					INSERT INTO outbox (topic, payload) SELECT 't', (i * 1000 + g)::text FROM generate_series(0, 499) g;
					BEGIN
						INSERT INTO outbox (topic, payload) SELECT 't', (i * 1000 + g)::text FROM generate_series(500, 999) g;
						IF i % 3 = 1 THEN RAISE EXCEPTION 'the inner'; END IF;
					EXCEPTION WHEN raise_exception THEN
					END;
					IF i % 3 = 2 THEN RAISE EXCEPTION 'the outer'; END IF;
				EXCEPTION WHEN raise_exception THEN
				END;
			END LOOP;
		END $$`)
	f.Exec(t, `SELECT fill()`)
	var want []string
	for i := range 100 {
		for g := range 1000 {
			if i%3 == 0 || i%3 == 1 && g < 500 {
				want = append(want, fmt.Sprint(i*1000+g))
			}
		}
	}
	f.has(t, want...)
	spilled := func() bool {
		return pgtest.One[int64](t, f.DB, `SELECT coalesce(sum(spill_count), 0) FROM pg_stat_replication_slots WHERE slot_name = $1`, f.Slot) > 0
	}
	pgtest.Eventually(t, patience, "a transaction that was spilled to disk", spilled)
}

func TestCase01_AnIdleOutboxInABusyClusterPinsNoWAL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.run(t)
	f.up(t, 1)
	elsewhere := pgtest.Database(t)
	elsewhere.Exec(t, `CREATE TABLE busy (x text)`)
	for range 20 {
		elsewhere.Exec(t, `INSERT INTO busy SELECT repeat('x', 100) FROM generate_series(1, 2000)`)
	}
	end := f.lsn(t, `SELECT pg_current_wal_flush_lsn()`)
	pgtest.Eventually(t, patience, "the slot confirms the server's end of WAL", func() error {
		if got := f.lsn(t, `SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1`, f.Slot); got < end {
			return fmt.Errorf("%v of %v", got, end)
		}
		return nil
	})
	if st := f.stream.State(); st.ConfirmedLSN < end || st.LastMessageAge <= 0 || st.LastMessageAge > time.Minute {
		t.Errorf("state %+v", st)
	}
	if passed, _ := f.recv.position(); passed < end {
		t.Errorf("passed %v of %v", passed, end)
	}
}

func TestRequestPositionIsAnsweredOnAnIdleServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{}).Database(t)) // in the shared one somebody is always busy
	f.run(t)
	f.up(t, 1)
	f.Exec(t, `INSERT INTO outbox (topic) VALUES ('t')`)
	f.passes(t, f.lsn(t, `SELECT pg_current_wal_insert_lsn()`))
	_, before := f.recv.position()
	f.stream.RequestPosition()
	pgtest.Eventually(t, patience, "an answer though nothing has moved", func() bool {
		_, passes := f.recv.position()
		return passes > before
	})
}

func TestABlockedReceiveIsWokenAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{}).Database(t))
	f.cfg.tick = time.Hour // nothing happens by itself, and the server hardly ever says anything
	stop := f.run(t)
	f.up(t, 1)
	for range 6 {
		_, before := f.recv.position()
		f.stream.RequestPosition()
		pgtest.Eventually(t, 2*time.Second, "an answer", func() bool {
			_, passes := f.recv.position()
			return passes > before
		})
	}
	stop()
}

func TestAPositionThatIsNotOnDiskIsNotConfirmed(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.Options{Settings: map[string]string{"wal_writer_delay": "10s"}})
	f := newFixture(t, c.Database(t))
	for _, sql := range Statements(f.cfg, idents(f.outboxes)) {
		f.Exec(t, sql)
	}
	ahead := 0
	for n := range 3 { // the WAL writer may come in between, but not always
		f.Exec(t, `SELECT pg_logical_emit_message(false, 'x', 'not flushed')`)
		f.registry = prometheus.NewRegistry()
		stop := f.run(t)
		f.up(t, n+1)
		st := f.stream.State()
		stop()
		if st.ConfirmedLSN < st.StartLSN {
			ahead++
		}
	}
	if ahead == 0 {
		t.Error("the insert position was confirmed at once")
	}
}

// passes asks until the stream has passed the position; soon, before the server itself writes anything.
func (f *fixture) passes(t *testing.T, pos pglogrepl.LSN) {
	t.Helper()
	pgtest.Eventually(t, 8*time.Second, fmt.Sprintf("the stream has passed %v", pos), func() error {
		f.stream.RequestPosition()
		if passed, _ := f.recv.position(); passed < pos {
			return fmt.Errorf("passed %v", passed)
		}
		return nil
	})
}

func TestRequestPositionIsAnsweredBehindAFullPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.NewCluster(t, pgtest.Options{}).Database(t))
	f.run(t)
	f.up(t, 1)
	conn := f.Connect(t)
	emit := func(n uint64) (pos pglogrepl.LSN) {
		t.Helper()
		_, err := conn.Exec(context.Background(), `SELECT pg_logical_emit_message(false, 'x', repeat('x', $1))`, n)
		do(t, err)
		do(t, conn.QueryRow(context.Background(), `SELECT pg_current_wal_insert_lsn()`).Scan(&pos))
		return pos
	}
	const page, header, room = 8192, 24, 2048
	const short = 400
	pgtest.Eventually(t, patience, "a record that ends with its page", func() bool {
		pos := emit(short)
		next := emit(short)
		overhead := uint64(next-pos) - short
		if used := uint64(next % page); used < header || used > page-room || next-pos > room {
			return false
		}
		next = emit(page - uint64(next%page) - overhead)
		return next%page == header
	})
	f.passes(t, f.lsn(t, `SELECT pg_current_wal_insert_lsn()`))
}

func TestCase07_TheServerHearsFromTheStreamWithoutAnyEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.cfg.DSN += "&options=-c%20wal_sender_timeout%3D2s"
	f.run(t)
	f.up(t, 1)
	pid := pgtest.One[int32](t, f.DB, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
	begun := time.Now()
	pgtest.Eventually(t, patience, "three times wal_sender_timeout", func() bool { return time.Since(begun) > 6*time.Second })
	f.insert(t, "still there")
	f.has(t, "still there")
	if now := pgtest.One[int32](t, f.DB, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, f.Slot); now != pid || f.recv.starts() != 1 {
		t.Errorf("walsender %d, then %d; lost: %v", pid, now, f.recv.lastLost())
	}
}

func TestTheSessionsSettings(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	for options, want := range map[string][]string{
		"":                                      {"2s", "30s", "hex", "UTF8"},
		"&options=-c%20wal_sender_timeout%3D0":  {"2s", "30s", "hex", "UTF8"},
		"&options=-c%20wal_sender_timeout%3D4s": {"2s", "4s", "hex", "UTF8"},
	} {
		cfg := f.cfg.withDefaults()
		cfg.DSN += options
		conn, srv, err := open(context.Background(), cfg, firstLockTimeout, nil)
		do(t, err)
		var got [4]string
		do(t, conn.QueryRow(context.Background(), `SELECT current_setting('lock_timeout'), current_setting('wal_sender_timeout'),
			current_setting('bytea_output'), current_setting('client_encoding')`).Scan(&got[0], &got[1], &got[2], &got[3]))
		shut(conn)
		if !slices.Equal(got[:], want) || srv.blockSize != 8192 || srv.segmentSize != 16<<20 {
			t.Errorf("%q: %q, %+v", options, got, srv)
		}
	}
}

func TestG10_AStopFreesTheSlotAndConfirmsWhatCame(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	stop := f.run(t)
	f.up(t, 1)
	f.insert(t, "one")
	f.has(t, "one")
	pgtest.Eventually(t, patience, "the commit is passed", func() bool { _, n := f.recv.position(); return n > 0 })
	passed, _ := f.recv.position()
	stop()
	pgtest.Eventually(t, 2*time.Second, "a free slot", func() bool {
		return !pgtest.One[bool](t, f.DB, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, f.Slot)
	})
	if got := f.lsn(t, `SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1`, f.Slot); got < passed {
		t.Errorf("confirmed %v of %v", got, passed)
	}
	if err := f.recv.lastLost(); !errors.Is(err, errStopped) {
		t.Errorf("lost: %v", err)
	}
	if st := f.stream.State(); st.Up || !strings.Contains(st.Reason, "stopped") || st.LastMessageAge != 0 {
		t.Errorf("state %+v", st)
	}
}

func TestWhatIsCommittedWithoutAStreamIsLeftToThePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	stop := f.run(t)
	f.up(t, 1)
	stop()
	f.insert(t, "the poll's")
	f.registry = prometheus.NewRegistry()
	f.run(t)
	f.up(t, 2)
	f.insert(t, "the stream's")
	f.has(t, "the stream's")
}

func TestG5_ATemporarySlotEndsWithTheStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pgtest.Database(t))
	f.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, f.Slot) // left from another configuration
	f.cfg.Temporary = true
	stop := f.run(t)
	f.up(t, 1)
	if !pgtest.One[bool](t, f.DB, `SELECT temporary FROM pg_replication_slots WHERE slot_name = $1`, f.Slot) {
		t.Error("the slot is not temporary")
	}
	f.insert(t, "one")
	f.has(t, "one")
	stop()
	pgtest.Eventually(t, 5*time.Second, "no slot", func() bool { return !f.slotExists(t) })
}
