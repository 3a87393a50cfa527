package table

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// fuzzColumns has each kind of a payload, of headers, of an id, of words and of times somewhere, by the first byte.
func fuzzColumns(n byte) (*Outbox, []WireColumn) {
	o := madeOutbox("t.{{topic}}.{{key}}")
	cols := slices.Clone(madeColumns)
	pick := func(i int, bits byte, oids ...uint32) { cols[i].OID = oids[int(bits)%len(oids)] }
	pick(0, n, pgtype.Int8OID, pgtype.Int4OID, pgtype.UUIDOID)
	if cols[0].OID == pgtype.UUIDOID {
		o.idKind = kindUUID
	}
	pick(1, n>>1, pgtype.UUIDOID, pgtype.TextOID)
	pick(2, n>>2, pgtype.TextOID, pgtype.UUIDOID, pgtype.Int2OID)
	pick(3, n>>3, pgtype.TextOID, pgtype.Int8OID, pgtype.UUIDOID)
	pick(4, n>>1, pgtype.ByteaOID, pgtype.JSONBOID, pgtype.JSONOID, pgtype.BPCharOID)
	pick(5, n>>4, pgtype.JSONBOID, pgtype.TextOID)
	pick(8, n>>5, pgtype.Int4OID, pgtype.Int2OID, pgtype.Int8OID)
	pick(11, n>>6, pgtype.TimestamptzOID, pgtype.TimestampOID)
	return o, cols
}

// fuzzFields cuts data into fields: a format, a length of two bytes, the value.
func fuzzFields(data []byte) []Field {
	var fields []Field
	for len(data) >= 3 {
		f := Field{Format: FieldFormat(data[0])}
		n := min(int(binary.BigEndian.Uint16(data[1:])), len(data)-3)
		if f.Format != Null {
			f.Data = data[3 : 3+n : 3+n]
		}
		fields, data = append(fields, f), data[3+n:]
	}
	return fields
}

func joinFields(fields []Field) []byte {
	var data []byte
	for _, f := range fields {
		data = append(binary.BigEndian.AppendUint16(append(data, byte(f.Format)), uint16(len(f.Data))), f.Data...)
	}
	return data
}

func FuzzDecode(f *testing.F) {
	f.Add(byte(0), joinFields(goodRow()))
	f.Add(byte(2), joinFields(slices.Insert(goodRow()[1:], 0, textRow("0b8dfe2d-3c1f-4b2b-9a2e-7d5a8c0f1e2d")...)))
	mixed := goodRow()
	mixed[0] = Field{Binary, []byte{0, 0, 0, 0, 0, 0, 0, 1}}
	mixed[1] = Field{Binary, make([]byte, 16)}
	mixed[4].Data = []byte(`\x00ff`)
	mixed[5] = Field{Binary, []byte("\x01{\"a\": [1, \"\\u00e9\"], \"b\": \"c\"}")}
	mixed[11] = Field{Binary, []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	f.Add(byte(0), joinFields(mixed))
	f.Add(byte(0xff), joinFields(mixed))
	f.Fuzz(func(t *testing.T, n byte, data []byte) {
		o, cols := fuzzColumns(n)
		d, err := o.Decoder(cols)
		if err != nil {
			t.Fatal(err)
		}
		first, err := d.Decode(fuzzFields(slices.Clone(data)))
		if (err == nil) != (first.Event != nil) {
			t.Fatalf("error %v with event %+v", err, first.Event)
		}
		spoilt := slices.Clone(data)
		again, err2 := d.Decode(fuzzFields(spoilt))
		if (err == nil) != (err2 == nil) {
			t.Fatalf("first %v, then %v", err, err2)
		}
		for i := range spoilt {
			spoilt[i] ^= 0x55
		}
		if diff := sameRows([]Row{first}, []Row{again}); err == nil && diff != "" {
			t.Fatalf("the event changed with what it was made of: %s", diff)
		}
		if err == nil && first.Event.Invalid == nil && first.Event.Topic == "" {
			t.Fatal("a valid event without a topic")
		}
	})
}

// FuzzHeaders compares with encoding/json.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":"b"}`, ` {"a" : "\u00e9\ud83d\ude00\n" , "b":[1, {"c" : "d e"}],"c":null, "d":1e5}`, `[1]`, `{"a":"\ud83d"}`, `{"a":{}}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			t.Skip("Postgres sends valid UTF-8")
		}
		buf := make([]byte, 0, len(text))
		got, grown, err := headers(nil, buf, text)
		if err == nil && len(grown) > len(text) {
			t.Fatalf("%d bytes of headers from %d", len(grown), len(text))
		}
		object := json.Valid(text) && strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{")
		if object != (err == nil) {
			t.Fatalf("%q: %v", text, err)
		}
		if object {
			compareHeaders(t, text, got)
		}
	})
}

// compareHeaders compares the last value of each name, which is what a map keeps.
func compareHeaders(t *testing.T, text []byte, got []event.Header) {
	t.Helper()
	var want map[string]json.RawMessage
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, h := range got {
		last[h.Name] = h.Value
	}
	for name, raw := range want {
		var s *string
		value, ok := last[name]
		switch err := json.Unmarshal(raw, &s); {
		case err == nil && s == nil: // null, perhaps after another value
		case !ok:
			t.Fatalf("%q: no %q", text, name)
		case err == nil && *s != value:
			t.Fatalf("%q: %q is %q, not %q", text, name, value, *s)
		case err != nil && !sameJSON(raw, []byte(value)):
			t.Fatalf("%q: %q is %q, not %q", text, name, value, raw)
		}
	}
	for name := range last {
		if _, ok := want[name]; !ok {
			t.Fatalf("%q: %q too much", text, name)
		}
	}
}

func sameJSON(a, b []byte) bool {
	return json.Valid(b) && string(appendCompact(nil, a)) == string(b) && len(b) <= len(a)
}
