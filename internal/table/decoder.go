package table

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Decoder makes events of rows that have one row description. It is not safe for concurrent use.
type Decoder struct {
	// Immutable.
	table    *Outbox
	prefix   string // of what a derived message id is a hash of
	columns  int
	id       source
	message  source
	key      source
	payload  source
	headers  source
	typ      source
	status   source
	attempts source
	next     source
	lastErr  source
	created  source
	publ     source
	topic    []topicPart

	// Changed by every Decode.
	strings interner
	scratch []byte         // of one word
	heads   []event.Header // of one row
}

// source is where in a row a value is, and how it is read; at is -1 when the table has no such column.
type source struct {
	at   int
	kind kind
	name string
}

// topicPart is text, or the value of a column.
type topicPart struct {
	text string
	from source // at is -1 for text
}

// WireColumns is the row description of a query, for Decoder.
func WireColumns(fds []pgconn.FieldDescription) []WireColumn {
	cols := make([]WireColumn, len(fds))
	for i, fd := range fds {
		cols[i] = WireColumn{Name: fd.Name, OID: fd.DataTypeOID}
	}
	return cols
}

// AppendFields appends the raw values of a query's row, for Decode. They are borrowed as raw is.
func AppendFields(dst []Field, fds []pgconn.FieldDescription, raw [][]byte) []Field {
	for i, data := range raw {
		f := Field{Format: Text, Data: data}
		switch {
		case data == nil:
			f.Format = Null
		case fds[i].Format == 1:
			f.Format = Binary
		}
		dst = append(dst, f)
	}
	return dst
}

// Decoder prepares the decoding of rows with these columns, in this order; names are as in the catalog, and columns
// that the relay doesn't know are ignored. It fails when a column isn't among them on which the event depends, since the
// event would not be the same by the other path.
func (o *Outbox) Decoder(cols []WireColumn) (*Decoder, error) {
	d := &Decoder{table: o, prefix: o.Schema + "\x00" + o.Name + "\x00", columns: len(cols), strings: interner{}}
	var errs []error
	find := func(c column, kinds []kind, optional bool) source {
		s, err := findSource(cols, c, kinds)
		if err != nil && !optional {
			errs = append(errs, err)
		}
		return s
	}
	for _, r := range roles {
		if dst := d.source(r.column); dst != nil {
			// What the first two tell is of polled rows only, and the last may be added at any time.
			optional := r.column == Attempts || r.column == LastError || r.column == PublishedAt
			*dst = find(o.columns[r.column], r.kinds, optional)
		}
	}
	for _, p := range o.template {
		d.topic = append(d.topic, topicPart{text: p.text, from: find(p.col, wordKinds, false)})
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("columns of %s: %w", o, errors.Join(errs...))
	}
	if (d.id.kind == kindUUID) != (o.idKind == kindUUID) {
		return nil, fmt.Errorf("columns of %s: the id's type was changed to %s; restart the relay", o, d.id.kind)
	}
	return d, nil
}

// source is the field of d for a column; Topic has none, its template has the sources.
func (d *Decoder) source(c Column) *source {
	return map[Column]*source{
		ID: &d.id, MessageID: &d.message, Key: &d.key, Payload: &d.payload, Headers: &d.headers, EventType: &d.typ,
		Status: &d.status, Attempts: &d.attempts, NextAttemptAt: &d.next, LastError: &d.lastErr, CreatedAt: &d.created,
		PublishedAt: &d.publ,
	}[c]
}

// findSource looks a column up in a row description. The type on the wire counts, which may have been changed since the
// table was resolved; a type without a fixed oid (a domain or an enum) is taken for what it was then.
func findSource(cols []WireColumn, c column, kinds []kind) (source, error) {
	none := source{at: -1}
	if c.name == "" {
		return none, nil
	}
	at := slices.IndexFunc(cols, func(w WireColumn) bool { return w.Name == c.name })
	if at < 0 {
		why := "was it renamed or dropped, or does the publication have a column list without it?"
		if c.generated {
			why = "the stream doesn't carry generated columns"
		}
		return none, fmt.Errorf("there is no column %q: %s", c.name, why)
	}
	k := builtin(cols[at].OID)
	if k == kindOther {
		if cols[at].OID < firstUserOID {
			return none, fmt.Errorf("column %q has a type (oid %d) that isn't supported", c.name, cols[at].OID)
		}
		k = c.kind
	}
	if !slices.Contains(kinds, k) {
		return none, fmt.Errorf("column %q is now %s, but must be %s", c.name, k, list(kinds))
	}
	return source{at: at, kind: k, name: c.name}, nil
}
