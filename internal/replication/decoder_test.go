package replication

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// wire are the messages, as a server sends them, of a transaction with two rows in an outbox, and what else a
// publication of everything brings: other tables, updates, deletes, truncates, types, emitted messages.
func wire(t pgtest.TB, binary bool) (*table.Outbox, [][]byte) {
	t.Helper()
	ctx := context.Background()
	db := pgtest.Database(t)
	statements, err := table.DDL(table.DDLOptions{Table: "outbox"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	db.Exec(t, strings.Join(statements, "\n"))
	db.Exec(t, `CREATE TYPE mood AS ENUM ('good'); CREATE TABLE other (id int PRIMARY KEY, m mood);
		CREATE PUBLICATION everything FOR ALL TABLES`)
	conn := db.Connect(t)
	o, err := table.Resolve(ctx, conn, 0, table.Spec{Table: "outbox"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, db.Slot)
	db.Exec(t, `SELECT pg_logical_emit_message(false, 'outside', 'x')`)
	db.Exec(t, `INSERT INTO other VALUES (1, 'good'); INSERT INTO outbox (topic, key, payload, headers) VALUES ('t', 'k', '{"a": 1}', '{"h": "v"}'), ('t', NULL, NULL, '{}');
		INSERT INTO outbox (topic, status) VALUES ('t', 'DEAD'); UPDATE other SET m = NULL; DELETE FROM other; TRUNCATE other;
		SELECT pg_logical_emit_message(true, 'inside', 'x')`)
	rows, err := conn.Query(ctx, `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1',
		'publication_names', 'everything', 'messages', 'true', 'binary', $2)`, db.Slot, map[bool]string{true: "true", false: "false"}[binary])
	if err != nil {
		t.Fatalf("%v", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatalf("%v", err)
	}
	return o, messages
}

func TestTheDecoderKnowsWhatServersSend(t *testing.T) {
	t.Parallel()
	for _, binary := range []bool{true, false} {
		o, messages := wire(t, binary)
		var kinds []byte
		var events []*event.Event
		commits := 0
		d := newDecoder([]*table.Outbox{o}, func(e *event.Event) { events = append(events, e) })
		for _, m := range messages {
			if !slices.Contains(kinds, m[0]) {
				kinds = append(kinds, m[0])
			}
			end, err := d.message(m, time.Now(), time.Now())
			if err != nil {
				t.Fatalf("%q: %v", m, err)
			}
			if end != 0 {
				commits++
			}
		}
		if slices.Sort(kinds); string(kinds) != "BCDIMRTUY" {
			t.Errorf("kinds %q", kinds)
		}
		if len(events) != 2 || commits != 1 || string(events[0].Payload) != `{"a": 1}` || events[1].Payload != nil || events[1].HasKey {
			t.Errorf("%d events, %d commits", len(events), commits)
		}
	}
}

func TestNoCutOrStretchedMessageIsTakenForWhole(t *testing.T) {
	t.Parallel()
	o, messages := wire(t, true)
	for _, m := range messages {
		if !slices.Contains([]byte("BCRI"), m[0]) {
			continue
		}
		ours := newDecoder([]*table.Outbox{o}, func(*event.Event) { t.Fatal("an event of a broken message") })
		ready := func() {
			ours.inside = m[0] != 'B'
			for _, r := range messages {
				if r[0] == 'R' && m[0] == 'I' {
					if _, err := ours.message(r, time.Time{}, time.Time{}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for n := range m {
			ready()
			if m[0] == 'I' && n > 5 && ours.outboxes[uint32(m[1])<<24|uint32(m[2])<<16|uint32(m[3])<<8|uint32(m[4])] == nil {
				continue // another table's rows aren't looked at
			}
			if _, err := ours.message(m[:n:n], time.Time{}, time.Time{}); !errors.Is(err, errMalformed) {
				t.Fatalf("%q cut to %d bytes: %v", m, n, err)
			}
		}
		ready()
		if m[0] == 'I' {
			continue
		}
		if _, err := ours.message(append(slices.Clone(m), 0), time.Time{}, time.Time{}); !errors.Is(err, errMalformed) {
			t.Fatalf("%q and one byte more: %v", m, err)
		}
	}
}

func TestMessagesOutOfPlaceAreErrors(t *testing.T) {
	t.Parallel()
	o, messages := wire(t, true)
	of := func(kind byte) []byte {
		for _, m := range messages {
			if m[0] == kind && (kind != 'I' && kind != 'R' || oidOf(m) == o.OID) {
				return m
			}
		}
		t.Fatalf("no %c", kind)
		return nil
	}
	for name, sequence := range map[string][][]byte{
		"two begins":              {of('B'), of('B')},
		"a commit alone":          {of('C')},
		"an insert alone":         {of('R'), of('I')},
		"an insert before its R":  {of('B'), of('I')},
		"an unknown kind":         {{'S', 0, 0, 0, 1}},
		"nothing":                 {{}},
		"a tuple of another size": {of('B'), of('R'), append(append([]byte{}, of('I')[:6]...), 0, 1, 'n')},
		"an unchanged value":      {of('B'), of('R'), append(append([]byte{}, of('I')[:6]...), 0, 1, 'u')},
		"an old tuple":            {of('B'), of('R'), append(append([]byte{}, of('I')[:5]...), 'O', 0, 0)},
	} {
		d := newDecoder([]*table.Outbox{o}, func(*event.Event) { t.Errorf("%s: an event", name) })
		var err error
		for _, m := range sequence {
			if _, err = d.message(m, time.Time{}, time.Time{}); err != nil {
				break
			}
		}
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func oidOf(m []byte) uint32 {
	r := reader{b: m[1:]}
	return r.uint32()
}

// FuzzDecode feeds the decoder with messages that a server sent, changed in every way: whatever comes, it neither
// panics nor takes a position of zero for the end of a transaction.
func FuzzDecode(f *testing.F) {
	o, text := wire(f, false)
	_, binary := wire(f, true)
	for _, messages := range [][][]byte{text, binary} {
		var all []byte
		for _, m := range messages {
			all = append(append(all, byte(len(m)>>8), byte(len(m))), m...)
		}
		f.Add(all)
		for _, m := range messages {
			f.Add(append([]byte{byte(len(m) >> 8), byte(len(m))}, m...))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		offered := 0
		d := newDecoder([]*table.Outbox{o}, func(e *event.Event) {
			offered++
			_ = e.Size()
		})
		// The first message's relation is ours, whatever its oid in this run.
		for len(b) >= 2 {
			n := min(int(b[0])<<8|int(b[1]), len(b)-2)
			m := slices.Clone(b[2 : 2+n])
			b = b[2+n:]
			if len(m) >= 5 && (m[0] == 'R' || m[0] == 'I') && m[1]&0x80 == 0 {
				copy(m[1:5], []byte{byte(o.OID >> 24), byte(o.OID >> 16), byte(o.OID >> 8), byte(o.OID)})
			}
			before := offered
			end, err := d.message(m, time.Now(), time.Now())
			if err == nil && end != 0 && d.inside {
				t.Fatal("still inside a transaction after its commit")
			}
			if offered > before && !d.inside {
				t.Fatal("an event outside of a transaction")
			}
		}
	})
}
