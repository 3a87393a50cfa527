package table

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

var (
	idTypes      = []string{"bigint", "integer", "uuid"}
	payloadTypes = []string{"json", "jsonb", "text", "varchar", "bytea", "payload_domain"}
)

// shop is one database with an outbox of every id and payload type, and all ways to see their rows.
type shop struct {
	conn         *pgx.Conn
	text, binary string // slots
	publication  string
	tables       []*Outbox
	payloadType  map[*Outbox]string
	byOID        map[uint32]*Outbox
}

func openShop(t *testing.T) *shop {
	t.Helper()
	db := pgtest.Database(t)
	s := &shop{conn: db.Connect(t), publication: db.Publication, payloadType: map[*Outbox]string{}, byOID: map[uint32]*Outbox{}}
	db.Exec(t, `CREATE TYPE state AS ENUM ('PENDING', 'PUBLISHED', 'DEAD'); CREATE DOMAIN payload_domain AS jsonb`)
	for i, id := range idTypes {
		for j, payload := range payloadTypes {
			status := []string{"text", "varchar(20)", "state", "char(12)"}[(i+j)%4]
			headers := []string{"jsonb", "json", "text"}[(i+j)%3]
			key := []string{"text", "uuid", "bigint"}[(i*2+j)%3]
			name := "outbox_" + id + "_" + payload
			db.Exec(t, fmt.Sprintf(`CREATE TABLE %s (filler int, id %s PRIMARY KEY, message_id uuid NOT NULL, topic text, key %s, payload %s, headers %s,
				event_type text, status %s NOT NULL DEFAULT 'PENDING', attempts int NOT NULL DEFAULT 0, next_attempt_at timestamptz, last_error text,
				created_at timestamptz NOT NULL, published_at timestamptz)`, name, id, key, payload, headers, status))
			o := resolve(t, s.conn, Spec{Table: name, Topic: "shop.{{topic}}"})
			s.tables = append(s.tables, o)
			s.byOID[o.OID] = o
			s.payloadType[o] = payload
		}
	}
	s.text, s.binary = stream(t, db)
	return s
}

// record is a row as the application writes it; nil is NULL.
type record struct {
	id                       any
	message                  [16]byte
	topic, key, payload      any
	headers, typ, status     any
	attempts                 int32
	next, created, published any
	lastError                any
}

// put replaces the table's rows.
func (s *shop) put(t fataler, o *Outbox, records []record) {
	t.Helper()
	exec(t, s.conn, "DELETE FROM "+o.Ident())
	batch := &pgx.Batch{}
	for _, r := range records {
		payload := "$5::text::" + s.payloadType[o]
		if s.payloadType[o] == "bytea" {
			payload = "$5::bytea"
		}
		batch.Queue(fmt.Sprintf(`INSERT INTO %s (id, message_id, topic, key, payload, headers, event_type, status, attempts, next_attempt_at, last_error, created_at, published_at)
			VALUES ($1, $2, $3, $4, %s, $6, $7, $8, $9, $10, $11, $12, $13)`, o.Ident(), payload),
			r.id, r.message, r.topic, r.key, r.payload, r.headers, r.typ, r.status, r.attempts, r.next, r.lastError, r.created, r.published)
	}
	if err := s.conn.SendBatch(context.Background(), batch).Close(); err != nil {
		t.Fatalf("insert into %s: %v", o, err)
	}
}

// compare reads the rows in all four ways and returns them when they are equal.
func (s *shop) compare(t fataler, o *Outbox) []Row {
	t.Helper()
	want := polled(t, s.conn, o, 1)
	for way, got := range map[string][]Row{
		"poll, text":     polled(t, s.conn, o, 0),
		"stream, text":   byID(streamed(t, s.conn, s.text, s.publication, false, s.byOID)[o.OID]),
		"stream, binary": byID(streamed(t, s.conn, s.binary, s.publication, true, s.byOID)[o.OID]),
	} {
		if diff := sameRows(want, got); diff != "" {
			t.Fatalf("%s of %s differs from poll, binary:\n%s", way, o, diff)
		}
	}
	return want
}

// byID sorts as Postgres does: signed integers, and bytes of uuids.
func byID(rows []Row) []Row {
	slices.SortFunc(rows, func(a, b Row) int {
		x, y := a.Event.ID, b.Event.ID
		if x.UUID {
			p, q := x.Bytes(), y.Bytes()
			return bytes.Compare(p[:], q[:])
		}
		return int(min(max(x.Int()/2-y.Int()/2, -1), 1)) // ids of a test differ by at least 2
	})
	return rows
}

func TestCase37_RowsOfEveryTypeAreEqualByBothPathsInBothFormats(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.SampledFrom(s.tables).Draw(t, "table")
		zone := rapid.SampledFrom([]string{"UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Monrovia"}).Draw(t, "zone")
		output := rapid.SampledFrom([]string{"hex", "escape"}).Draw(t, "bytea_output")
		exec(t, s.conn, fmt.Sprintf("SET TimeZone = '%s'; SET bytea_output = '%s'", zone, output))
		n := rapid.IntRange(1, 6).Draw(t, "rows")
		records := make([]record, n)
		for i := range records {
			records[i] = s.draw(t, o, i)
		}
		s.put(t, o, records)
		rows := s.compare(t, o)
		if len(rows) != n {
			t.Fatalf("%d rows, not %d", len(rows), n)
		}
		for _, row := range rows {
			s.expect(t, o, row, records)
		}
	})
}

func (s *shop) draw(t *rapid.T, o *Outbox, i int) record {
	text := rapid.StringMatching(`[^\x00]{0,20}`)
	opt := func(g *rapid.Generator[string]) any {
		if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
			return nil
		}
		return g.Draw(t, "value")
	}
	instant := func() any {
		us := rapid.Int64Range(-210_000_000_000_000_000, 9_000_000_000_000_000_000).Draw(t, "time")
		return time.UnixMicro(us).UTC()
	}
	r := record{
		topic: opt(text), key: opt(text), headers: opt(headerText()), typ: opt(text), lastError: opt(text),
		payload:  s.drawPayload(t, o),
		status:   rapid.SampledFrom([]string{Pending, Published, Dead}).Draw(t, "status"),
		attempts: int32(rapid.IntRange(0, math.MaxInt32).Draw(t, "attempts")),
		next:     instant(), created: instant(), published: instant(),
	}
	if rapid.Bool().Draw(t, "fresh") {
		r.attempts, r.lastError, r.published, r.next = 0, nil, nil, nil
	}
	copy(r.message[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "message id"))
	switch o.columns[Key].kind {
	case kindUUID:
		r.key = r.message
	case kindInt8:
		r.key = rapid.Int64().Draw(t, "key")
	}
	switch o.IDType() {
	case "uuid":
		r.id = [16]byte{rapid.Byte().Draw(t, "id"), 15: byte(i)}
	case "integer":
		r.id = int32(rapid.IntRange(math.MinInt32/32, math.MaxInt32/32).Draw(t, "id"))*16 + int32(2*i)
	default:
		r.id = rapid.Int64Range(math.MinInt64/32, math.MaxInt64/32).Draw(t, "id")*16 + int64(2*i)
	}
	return r
}

func (s *shop) drawPayload(t *rapid.T, o *Outbox) any {
	if rapid.IntRange(0, 9).Draw(t, "null payload") == 0 {
		return nil
	}
	switch s.payloadType[o] {
	case "bytea":
		return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload")
	case "text", "varchar":
		return rapid.StringMatching(`[^\x00]{0,60}`).Draw(t, "payload")
	default:
		return jsonValue(3).Draw(t, "payload")
	}
}

// expect compares a row with what was written, as far as Postgres keeps that as it is.
func (s *shop) expect(t fataler, o *Outbox, row Row, records []record) {
	t.Helper()
	e := row.Event
	i := slices.IndexFunc(records, func(r record) bool { return r.message == e.MessageID && rowID(r.id) == e.ID })
	if i < 0 {
		t.Fatalf("nobody wrote message %x with id %s", e.MessageID, e.ID)
	}
	r := records[i]
	if row.Pending != (r.status == Pending) || e.HasKey != (r.key != nil) || e.Returned != (r.attempts > 0 || r.lastError != nil || r.published != nil) {
		t.Fatalf("%+v gave %+v", r, row)
	}
	if !e.CreatedAt.Equal(r.created.(time.Time)) || e.Attempts != r.attempts || r.next == nil != row.NextAttemptAt.IsZero() {
		t.Fatalf("%+v gave %+v", r, row)
	}
	if topic, ok := r.topic.(string); ok != (e.Topic != "") || ok && e.Topic != "shop."+topic {
		t.Fatalf("topic %v gave %q", r.topic, e.Topic)
	}
	if r.topic == nil && e.Invalid == nil {
		t.Fatalf("an event without a topic is valid")
	}
	if (e.Payload == nil) != (r.payload == nil) {
		t.Fatalf("payload %v gave %v", r.payload, e.Payload)
	}
	want := fmt.Sprint(r.payload)
	switch kind := s.payloadType[o]; {
	case r.payload == nil:
		return
	case kind == "bytea":
		want = string(r.payload.([]byte))
	case kind == "jsonb", kind == "payload_domain": // which writes it in its own way
		if err := s.conn.QueryRow(context.Background(), "SELECT $1::text::jsonb::text", want).Scan(&want); err != nil {
			t.Fatalf("jsonb: %v", err)
		}
	}
	if string(e.Payload) != want {
		t.Fatalf("payload %q gave %q", want, e.Payload)
	}
}

func rowID(v any) event.RowID {
	switch v := v.(type) {
	case [16]byte:
		return event.UUIDID(3, v)
	case int32:
		return event.IntID(3, int64(v))
	default:
		return event.IntID(3, v.(int64))
	}
}

// jsonValue generates JSON that jsonb takes, too: no \u0000 and no lone surrogates.
func jsonValue(depth int) *rapid.Generator[string] {
	leaf := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", `""`, "0", "-0", "1e3", "9007199254740993", "123456789012345678901234567890.123456789", `"\u00e9 \ud83d\ude00 \n \" \\ \/"`}),
		rapid.Custom(func(t *rapid.T) string {
			return `"` + rapid.StringMatching(`[^\x00-\x1f"\\]{0,12}`).Draw(t, "string") + `"`
		}),
		rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Int64().Draw(t, "number")) }),
	)
	if depth == 0 {
		return leaf
	}
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
		inner := rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "items")
		open, close := "[", "]"
		if rapid.Bool().Draw(t, "object") {
			open, close = "{", "}"
			for i := range inner {
				inner[i] = fmt.Sprintf(`"k%d":%s%s`, i, space.Draw(t, "space"), inner[i])
			}
		}
		return open + strings.Join(inner, ","+space.Draw(t, "space")) + close
	}))
}

func headerText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"{}", "[]", "7", `{ "traceparent" : "00-1-2-01", "n": 9007199254740993, "x": null}`}), jsonValue(2))
}

func TestCase37_ExtremePayloadsAreEqualByBothPaths(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	exec(t, s.conn, "SET TimeZone = 'UTC'; SET bytea_output = 'hex'")
	large := strings.Repeat("größer als eine Seite 😀 ", 1<<20/28)
	for _, o := range s.tables {
		values := []any{nil, "", "naïve 東京 😀 \u2028", large}
		switch s.payloadType[o] {
		case "bytea":
			values = []any{nil, []byte{}, []byte{0, 1, 0xff, '\\', 'x'}, bytes.Repeat([]byte{0, 0xfe, '\\'}, 1<<20/3)}
		case "json", "jsonb", "payload_domain":
			values = []any{nil, `""`, `{"a": 9007199254740993, "b": 1e400, "c": -0.0, "d": 18446744073709551616}`, `{"v":"` + large + `"}`}
		}
		var records []record
		for i, v := range values {
			r := record{message: [16]byte{15: byte(i)}, topic: "t", payload: v, status: Pending, headers: `{"i":"1"}`, created: time.Unix(int64(i), 0).UTC()}
			switch o.IDType() {
			case "uuid":
				r.id = [16]byte{0: byte(i)}
			case "integer":
				r.id = []int32{math.MinInt32, -2, 0, math.MaxInt32}[i]
			default:
				r.id = []int64{math.MinInt64, -2, 0, math.MaxInt64}[i]
			}
			records = append(records, r)
		}
		s.put(t, o, records)
		rows := s.compare(t, o)
		if len(rows) != len(records) {
			t.Fatalf("%d rows", len(rows))
		}
		for _, row := range rows {
			s.expect(t, o, row, records)
		}
	}
}
