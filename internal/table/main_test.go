package table

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// fataler is what the helpers need of a test, also of a rapid one.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func resolve(t fataler, q Querier, spec Spec) *Outbox {
	t.Helper()
	o, err := Resolve(context.Background(), q, 3, spec)
	if err != nil {
		t.Fatalf("resolve: %v", err)
	}
	return o
}

// polled reads all rows of a table as the poll does, with all values in one format (0: text, 1: binary).
func polled(t fataler, conn *pgx.Conn, o *Outbox, format int16) []Row {
	t.Helper()
	sql := "SELECT "
	for i, c := range o.PollColumns() {
		if i > 0 {
			sql += ", "
		}
		sql += c
	}
	sql += " FROM " + o.Ident() + " ORDER BY " + o.Col(ID)
	rr := conn.PgConn().ExecParams(context.Background(), sql, nil, nil, nil, []int16{format})
	d, err := o.Decoder(WireColumns(rr.FieldDescriptions()))
	if err != nil {
		t.Fatalf("decoder of poll: %v", err)
	}
	var rows []Row
	var fields []Field
	for rr.NextRow() {
		fields = AppendFields(fields[:0], rr.FieldDescriptions(), rr.Values())
		rows = append(rows, decode(t, d, fields))
	}
	if _, err := rr.Close(); err != nil {
		t.Fatalf("poll: %v", err)
	}
	return rows
}

// decode decodes and then spoils what the fields have borrowed.
func decode(t fataler, d *Decoder, fields []Field) Row {
	t.Helper()
	own := make([]Field, len(fields))
	for i, f := range fields {
		own[i] = f
		own[i].Data = append([]byte(nil), f.Data...)
	}
	row, err := d.Decode(own)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	for i := range own {
		for j := range own[i].Data {
			own[i].Data[j] = 0xff
		}
	}
	return row
}

// streamed reads what a logical slot has of the tables, by their oids, in commit order.
func streamed(t fataler, conn *pgx.Conn, slot, publication string, binary bool, tables map[uint32]*Outbox) map[uint32][]Row {
	t.Helper()
	ctx := context.Background()
	rows, err := conn.Query(ctx, `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2, 'binary', $3)`, slot, pgx.Identifier{publication}.Sanitize(), fmt.Sprint(binary))
	if err != nil {
		t.Fatalf("read slot: %v", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatalf("read slot: %v", err)
	}
	decoders := map[uint32]*Decoder{}
	out := map[uint32][]Row{}
	for _, data := range messages {
		m, err := pglogrepl.Parse(data)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		switch m := m.(type) {
		case *pglogrepl.RelationMessage:
			if o := tables[m.RelationID]; o != nil {
				decoders[m.RelationID] = relationDecoder(t, o, m)
			}
		case *pglogrepl.InsertMessage:
			if d := decoders[m.RelationID]; d != nil {
				out[m.RelationID] = append(out[m.RelationID], decode(t, d, tuple(m.Tuple)))
			}
		}
	}
	return out
}

func relationDecoder(t fataler, o *Outbox, m *pglogrepl.RelationMessage) *Decoder {
	t.Helper()
	var cols []WireColumn
	for _, c := range m.Columns {
		cols = append(cols, WireColumn{Name: c.Name, OID: c.DataType})
	}
	d, err := o.Decoder(cols)
	if err != nil {
		t.Fatalf("decoder of stream: %v", err)
	}
	return d
}

func tuple(data *pglogrepl.TupleData) []Field {
	var fields []Field
	for _, c := range data.Columns {
		fields = append(fields, Field{Format: FieldFormat(c.DataType), Data: c.Data})
	}
	return fields
}

// stream makes a publication of all tables of the database and two slots.
func stream(t *testing.T, db *pgtest.DB) (text, binary string) {
	t.Helper()
	db.Exec(t, "CREATE PUBLICATION "+db.Publication+" FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root)")
	text, binary = db.Slot+"_t", db.Slot+"_b"
	for _, s := range []string{text, binary} {
		db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s)
	}
	return text, binary
}

// sameRows compares rows; a nil payload differs from an empty one. (Comparing bytes one by one would take minutes.)
func sameRows(want, got []Row) string {
	return cmp.Diff(want, got,
		cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }),
		cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }))
}

func one(t fataler, rows []Row) *event.Event {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%d rows, not 1", len(rows))
	}
	return rows[0].Event
}

func exec(t fataler, conn interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
