package table

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// binaryRow is a row of a new table as a binary stream brings it, with 400 bytes of payload.
func binaryRow(headers string) []Field {
	fields := goodRow()
	fields[0] = Field{Binary, binary.BigEndian.AppendUint64(nil, 12345678)}
	fields[1] = Field{Binary, bytes.Repeat([]byte{7}, 16)}
	fields[4].Data = bytes.Repeat([]byte("x"), 400)
	fields[5] = Field{Binary, []byte("\x01" + headers)}
	fields[8] = Field{Binary, []byte{0, 0, 0, 0}}
	fields[9] = Field{Binary, binary.BigEndian.AppendUint64(nil, 848_000_000_000_000)}
	fields[11] = fields[9]
	return fields
}

func textRowOf(headers string) []Field {
	fields := goodRow()
	fields[4].Data = bytes.Repeat([]byte("x"), 400)
	fields[5].Data = []byte(headers)
	return fields
}

const traced = `{"tenant": "7", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`

func BenchmarkDecode(b *testing.B) {
	for name, fields := range map[string][]Field{
		"binary": binaryRow("{}"), "binary, headers": binaryRow(traced), "text": textRowOf("{}"), "text, headers": textRowOf(traced),
	} {
		b.Run(name, func(b *testing.B) {
			d, err := madeOutbox("").Decoder(madeColumns)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(fields); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAnEventCostsThreeAllocations at most: the event, one buffer, the headers.
func TestAnEventCostsThreeAllocations(t *testing.T) {
	for want, rows := range map[int][][]Field{2: {binaryRow("{}"), textRowOf("{}")}, 3: {binaryRow(traced), textRowOf(traced)}} {
		for _, fields := range rows {
			d, err := madeOutbox("a.{{topic}}").Decoder(madeColumns)
			if err != nil {
				t.Fatal(err)
			}
			got := testing.AllocsPerRun(100, func() {
				if _, err := d.Decode(fields); err != nil {
					t.Fatal(err)
				}
			})
			if int(got) > want {
				t.Errorf("%v allocations, not %d", got, want)
			}
		}
	}
}
