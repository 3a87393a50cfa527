package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestCase38_HeadersArePlainStrings(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	for _, typ := range []string{"jsonb", "json", "text", "varchar"} {
		exec(t, conn, `DROP TABLE IF EXISTS outbox; CREATE TABLE outbox (id bigint PRIMARY KEY, topic text DEFAULT 't', key text, payload json, headers `+typ+`, status text DEFAULT 'PENDING')`)
		o := resolve(t, conn, Spec{Table: "outbox"})
		for text, want := range map[string][]event.Header{
			`{}`:          nil,
			`null`:        nil,
			`{"a": null}`: nil,
			`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`: {{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
			`{"a": "", "b": "\"x\"", "c": "\u00fc\ud83d\ude00\n\\\/\t"}`:                 {{Name: "a", Value: ""}, {Name: "b", Value: `"x"`}, {Name: "c", Value: "ü😀\n\\/\t"}},
			`{"a": 9007199254740993, "b": true, "c": null, "d": false, "\u0065": -1.50}`: {{Name: "a", Value: "9007199254740993"}, {Name: "b", Value: "true"}, {Name: "d", Value: "false"}, {Name: "e", Value: "-1.50"}},
			`{"a": {"x": [1, "two  \" }", null]}, "b": [], "c": "東京"}`:                   {{Name: "a", Value: `{"x":[1,"two  \" }",null]}`}, {Name: "b", Value: "[]"}, {Name: "c", Value: "東京"}},
		} {
			exec(t, conn, `DELETE FROM outbox`)
			exec(t, conn, `INSERT INTO outbox (id, headers) VALUES (1, $1::text::`+typ+`)`, text)
			for _, format := range []int16{0, 1} {
				e := one(t, polled(t, conn, o, format))
				if diff := cmp.Diff(want, e.Headers); diff != "" || e.Invalid != nil {
					t.Errorf("%s %s: %v %s", typ, text, e.Invalid, diff)
				}
			}
		}
	}
}

func TestCase38_HeadersThatAreNoObjectMakeTheEventInvalid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[]`, `"a"`, `7`, `true`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":"b" "c":"d"}`, `{"a":"b"} x`, `{"a":"b"}}`, `{"a":[1}`, `{"a":tru}`,
		`{"a":"b`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u+123"}`, `{"a":"\`, "{\"a\":\"\n\"}", `{a:1}`, `nul`, `{"a":1 2}`, `{"a":[}`, `{"a":{"b":}}`, ` `} {
		e := decodeHeader(t, text)
		if e.Invalid == nil || e.Headers != nil {
			t.Errorf("%s is taken: %q", text, e.Headers)
		}
		if string(e.Payload) != "p" || e.Topic != "t" {
			t.Errorf("%s: the rest of the event is lost: %+v", text, e)
		}
	}
}

func TestHeadersKeepTheirOrderAndRepetitions(t *testing.T) {
	t.Parallel()
	e := decodeHeader(t, ` { "b" : "1" , "a" : "2" , "b" : "3" } `)
	if want := []event.Header{{Name: "b", Value: "1"}, {Name: "a", Value: "2"}, {Name: "b", Value: "3"}}; !cmp.Equal(want, e.Headers) {
		t.Errorf("%q", e.Headers)
	}
	if e := decodeHeader(t, `{"half":"\ud83d","other":"\ude00x","both":"\ud83d\u0041"}`); !cmp.Equal(e.Headers,
		[]event.Header{{Name: "half", Value: "\ufffd"}, {Name: "other", Value: "\ufffdx"}, {Name: "both", Value: "\ufffdA"}}) {
		t.Errorf("%q", e.Headers)
	}
}

// madeOutbox is what Resolve makes of a new table; with it, no server is needed.
func madeOutbox(topic string) *Outbox {
	o := &Outbox{Index: 3, Schema: "public", Name: "outbox", relkind: 'r', idKind: kindInt8, statuses: [3]string{Pending, Published, Dead}, columns: map[Column]column{}}
	for c, k := range map[Column]kind{
		ID: kindInt8, MessageID: kindUUID, Topic: kindText, Key: kindText, Payload: kindJSON, Headers: kindJSONB, EventType: kindText, Status: kindText,
		Attempts: kindInt4, NextAttemptAt: kindTimestamptz, LastError: kindText, CreatedAt: kindTimestamptz, PublishedAt: kindTimestamptz,
	} {
		o.columns[c] = column{name: string(c), kind: k}
	}
	o.template, _ = parseTemplate(topic)
	for i := range o.template {
		o.template[i].col = o.columns[Column(o.template[i].name)]
	}
	return o
}

// madeColumns is the relation of a new table.
var madeColumns = []WireColumn{
	{"id", pgtype.Int8OID}, {"message_id", pgtype.UUIDOID}, {"topic", pgtype.TextOID}, {"key", pgtype.TextOID}, {"payload", pgtype.JSONOID}, {"headers", pgtype.JSONBOID},
	{"event_type", pgtype.TextOID}, {"status", pgtype.TextOID}, {"attempts", pgtype.Int4OID}, {"next_attempt_at", pgtype.TimestamptzOID}, {"last_error", pgtype.TextOID},
	{"created_at", pgtype.TimestamptzOID}, {"published_at", pgtype.TimestamptzOID},
}

// textRow is a row of a new table; "\x00" stands for NULL.
func textRow(values ...string) []Field {
	fields := make([]Field, len(values))
	for i, v := range values {
		fields[i] = Field{Text, []byte(v)}
		if v == "\x00" {
			fields[i] = Field{Format: Null}
		}
	}
	return fields
}

func goodRow() []Field {
	return textRow("1", "0b8dfe2d-3c1f-4b2b-9a2e-7d5a8c0f1e2d", "t", "k", "p", "{}", "E", "PENDING", "0", "2026-11-30 21:11:29.123456+00", "\x00", "2026-11-30 21:11:29.5+05:30", "\x00")
}

func decodeHeader(t *testing.T, headers string) *event.Event {
	t.Helper()
	d, err := madeOutbox("").Decoder(madeColumns)
	if err != nil {
		t.Fatal(err)
	}
	fields := goodRow()
	fields[5].Data = []byte(headers)
	return decode(t, d, fields).Event
}

func TestARowBecomesAnEvent(t *testing.T) {
	t.Parallel()
	d, err := madeOutbox("a.{{topic}}.{{event_type}}").Decoder(madeColumns)
	if err != nil {
		t.Fatal(err)
	}
	want := Row{
		Event: &event.Event{
			ID: event.IntID(3, 1), MessageID: [16]byte{0x0b, 0x8d, 0xfe, 0x2d, 0x3c, 0x1f, 0x4b, 0x2b, 0x9a, 0x2e, 0x7d, 0x5a, 0x8c, 0x0f, 0x1e, 0x2d},
			Topic: "a.t.E", Key: "k", HasKey: true, Payload: []byte("p"), Type: "E", CreatedAt: time.Date(2026, 11, 30, 15, 41, 29, 500_000_000, time.UTC),
		},
		Pending: true, NextAttemptAt: time.Date(2026, 11, 30, 21, 11, 29, 123_456_000, time.UTC),
	}
	if diff := sameRows([]Row{want}, []Row{decode(t, d, goodRow())}); diff != "" {
		t.Error(diff)
	}
	for column, value := range map[int]string{8: "1", 10: "", 12: "2026-11-30 00:00:00+00"} {
		fields := goodRow()
		fields[column] = Field{Text, []byte(value)}
		if !decode(t, d, fields).Event.Returned {
			t.Errorf("a row with %s set isn't returned", madeColumns[column].Name)
		}
	}
}

func TestARowWithoutATopicIsInvalid(t *testing.T) {
	t.Parallel()
	for template, values := range map[string][]string{"": {"\x00", ""}, "a.{{topic}}": {"\x00"}, "{{topic}}{{topic}}": {"", "\x00"}} {
		d, err := madeOutbox(template).Decoder(madeColumns)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			fields := goodRow()
			fields[2] = textRow(v)[0]
			if e := decode(t, d, fields).Event; e.Invalid == nil || e.Topic != "" || string(e.Payload) != "p" {
				t.Errorf("%q with %q: %+v", template, v, e)
			}
		}
	}
}

func TestImpossibleDataIsAnErrorThatNamesTheColumn(t *testing.T) {
	t.Parallel()
	d, err := madeOutbox("").Decoder(madeColumns)
	if err != nil {
		t.Fatal(err)
	}
	for column, bad := range map[int][]Field{
		0:  {{Null, nil}, {Text, []byte("x")}, {Text, nil}, {Binary, []byte{1, 2, 3, 4}}, {Binary, nil}, {'u', nil}, {0, nil}},
		1:  {{Text, []byte("0b8dfe2d")}, {Binary, make([]byte, 15)}},
		2:  {{'u', nil}},
		3:  {{'u', nil}},
		4:  {{'u', nil}},
		5:  {{Binary, []byte("{}")}, {Binary, nil}, {Binary, []byte{2, '{', '}'}}, {'u', nil}},
		6:  {{'u', nil}},
		7:  {{'u', nil}},
		8:  {{Text, []byte("many")}, {Binary, make([]byte, 8)}},
		9:  {{Binary, make([]byte, 7)}},
		10: {{'x', nil}},
		11: {{Text, []byte("30.11.2026 21:11:29 UTC")}, {Text, []byte("2026-11-30")}, {Text, []byte("2026-13-30 21:11:29+00")}, {Text, []byte("2026-11-30 21:11:29.+00")}, {Text, []byte("2026-11-30 21:11:29+0")}, {Text, []byte("2026-11-30 21:11:29+00 AD")}, {Text, nil}},
		12: {{'x', nil}},
	} {
		for _, f := range bad {
			fields := goodRow()
			fields[column] = f
			if _, err := d.Decode(fields); err == nil || !strings.Contains(err.Error(), `public.outbox: column "`+madeColumns[column].Name+`"`) {
				t.Errorf("%s %c %q: %v", madeColumns[column].Name, f.Format, f.Data, err)
			}
		}
	}
	if _, err := d.Decode(goodRow()[1:]); err == nil {
		t.Error("a row with too few fields is decoded")
	}
}

func TestByteaIsReadInAllItsForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{``: "", `\x`: "", `\x00fF`: "\x00\xff", `a\\b\000\377`: "a\\b\x00\xff", `\\x41`: `\x41`} {
		if got, err := appendBytea(nil, []byte(text)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`\x0`, `\xzz`, `\`, `a\`, `\1`, `\12`, `\400`, `\18x`} {
		if got, err := appendBytea(nil, []byte(text)); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestTimesAreEqualInBothFormats(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	exec(t, conn, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text, key text, payload json, status text, created_at timestamp, next_attempt_at timestamptz, published_at timestamptz)`)
	o := resolve(t, conn, Spec{Table: "outbox"})
	for value, want := range map[string]time.Time{
		"infinity": latest, "-infinity": earliest, "4714-11-24 00:00:00+00 BC": earliest, "294276-12-31 23:59:59.999999+00": latest,
		"0001-01-01 00:00:00+00": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "0044-03-15 12:00:00.5+00 BC": time.Date(-43, 3, 15, 12, 0, 0, 500_000_000, time.UTC),
		"1969-12-31 23:59:59.999999+00": time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC), "1999-12-31 23:59:59.000001+00": time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC),
		"12345-06-07 08:09:10+00": time.Date(12345, 6, 7, 8, 9, 10, 0, time.UTC),
	} {
		for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Monrovia"} {
			exec(t, conn, fmt.Sprintf(`SET TimeZone = '%s'; DELETE FROM outbox; INSERT INTO outbox VALUES (1, 't', 'k', '1', 'PENDING', timestamptz '%s' AT TIME ZONE 'UTC', '%[2]s', '%[2]s')`, zone, value))
			for _, format := range []int16{0, 1} {
				row := polled(t, conn, o, format)[0]
				if !row.Event.CreatedAt.Equal(want) || !row.NextAttemptAt.Equal(want) || !row.Event.Returned {
					t.Errorf("%s in %s, format %d: %s, %s", value, zone, format, row.Event.CreatedAt, row.NextAttemptAt)
				}
			}
		}
	}
}

func TestCase41_AddedDroppedAndReorderedColumnsGoUnnoticed(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	exec(t, conn, `CREATE TABLE outbox (useless int, key text, id bigint PRIMARY KEY, topic text, payload jsonb, status text DEFAULT 'PENDING', last_error text)`)
	o := resolve(t, conn, Spec{Table: "outbox"})
	text, binary := stream(t, db)
	insert := func(id int) {
		exec(t, conn, `INSERT INTO outbox (id, topic, key, payload) VALUES ($1, 't', 'k', '{"a":1}')`, id)
	}
	insert(1)
	exec(t, conn, `ALTER TABLE outbox DROP useless; ALTER TABLE outbox ADD created_by text DEFAULT 'x'`)
	insert(2)
	exec(t, conn, `ALTER TABLE outbox DROP key; ALTER TABLE outbox ADD key varchar(9); ALTER TABLE outbox ALTER id TYPE integer; ALTER TABLE outbox ALTER payload TYPE text`)
	insert(3)
	exec(t, conn, `ALTER TABLE outbox DROP last_error`)
	insert(4)
	for _, slot := range []string{text, binary} {
		rows := streamed(t, conn, slot, db.Publication, slot == binary, map[uint32]*Outbox{o.OID: o})[o.OID]
		if len(rows) != 4 {
			t.Fatalf("%d rows", len(rows))
		}
		for i, row := range rows {
			e := row.Event
			if e.ID.Int() != int64(i+1) || e.Key != "k" || e.Topic != "t" || string(e.Payload) != []string{`{"a": 1}`, `{"a": 1}`, `{"a":1}`, `{"a":1}`}[i] || !row.Pending {
				t.Errorf("row %d: %+v", i, e)
			}
		}
	}
}

func TestCase41_WhatAnEventDependsOnIsMissed(t *testing.T) {
	t.Parallel()
	o := madeOutbox("")
	for i, c := range madeColumns {
		cols := append(append([]WireColumn(nil), madeColumns[:i]...), madeColumns[i+1:]...)
		_, err := o.Decoder(cols)
		optional := c.Name == "attempts" || c.Name == "last_error" || c.Name == "published_at"
		if optional != (err == nil) || err != nil && !strings.Contains(err.Error(), `columns of public.outbox: there is no column "`+c.Name+`"`) {
			t.Errorf("without %s: %v", c.Name, err)
		}
		cols = append(cols, WireColumn{c.Name, pgtype.PointOID})
		if _, err := o.Decoder(cols); optional != (err == nil) {
			t.Errorf("with a point for %s: %v", c.Name, err)
		}
	}
	cols := append([]WireColumn{{"id", pgtype.UUIDOID}}, madeColumns[1:]...)
	if _, err := o.Decoder(cols); err == nil {
		t.Error("an id that became a uuid is taken for an integer")
	}
}

func TestTopicTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "|topic", "{{topic}}": "|topic", "a": "a|", "a.{{ topic }}.b{{x y}}": "a.|||topic|.b|||x y", "{a}}": "", "}}": "", "{{": "", "{{}}": "", "{{ }}": "", "{{a{{b}}": "", "a{{b}}{{c": ""} {
		got, err := parseTemplate(text)
		var flat []string
		for _, p := range got {
			flat = append(flat, p.text+"|"+p.name)
		}
		if (err != nil) != (want == "") || strings.Join(flat, "|") != want {
			t.Errorf("%q: %q, %v", text, strings.Join(flat, "|"), err)
		}
	}
}

func TestInternedStringsAreBounded(t *testing.T) {
	t.Parallel()
	in := interner{}
	for i := range 3 * maxInterned {
		if s := fmt.Sprint(i); in.get([]byte(s)) != s {
			t.Fatal(s)
		}
		if len(in) > maxInterned {
			t.Fatalf("%d strings", len(in))
		}
	}
	n := len(in)
	in.get([]byte(strings.Repeat("x", maxInternedLength+1)))
	if len(in) != n {
		t.Error("a long string is kept")
	}
}

func TestAResolveErrorIsOneLine(t *testing.T) {
	t.Parallel()
	_, err := Resolve(context.Background(), nil, 0, Spec{Table: `a."b`})
	var re *ResolveError
	if !errors.As(err, &re) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), `table a."b can't be used as an outbox: `) {
		t.Errorf("error %v", err)
	}
}
