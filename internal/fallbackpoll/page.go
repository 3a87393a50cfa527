package fallbackpoll

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// reader makes events of a table's rows, and knows how many of them fit in a page.
type reader struct {
	limit   int // rows of the next page, adapted to their size
	columns []table.WireColumn
	decoder *table.Decoder
	fields  []table.Field
}

// readPage reads the next page of the table's first stretch, and in the same round trip but by a later statement the
// WAL position. more is false when the stretch has no further row.
func (p *Poller) readPage(ctx context.Context, t *polled, page *event.Page) (more bool, err error) {
	s := &t.stretches[0]
	var args []any
	if s.by != undated {
		args = append(args, s.bound)
	}
	limit := t.reader.limit
	batch := &pgx.Batch{}
	batch.Queue(pageSQL(t.Outbox, s.by, s.after != nil, limit), append(args, s.after...)...)
	batch.Queue(walSQL)

	began := p.now()
	results := p.moment.tx.SendBatch(ctx, batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	rows, err := results.Query()
	if err != nil {
		return false, err
	}
	read, err := p.read(t, s.by, rows)
	if err != nil {
		return false, err
	}
	took := p.now().Sub(began)
	p.moment.reading += took
	p.metrics.seconds.Observe(took.Seconds())
	var wal string
	if err := results.QueryRow().Scan(&wal); err != nil {
		return false, err
	}
	if page.WAL, err = pglogrepl.ParseLSN(wal); err != nil {
		return false, err
	}
	page.Events = read.events
	if len(read.events) > 0 {
		s.after = read.cursor
	}
	if s.by == byID {
		t.floor.note(read.events, took > p.cfg.SlowQuery && len(read.events) < limit/2)
	}
	t.reader.adapt(len(read.events), read.bytes, read.cut, p.cfg)
	return read.cut || len(read.events) == limit, nil
}

// pageRows is what was used of a page query's result.
type pageRows struct {
	events []*event.Event
	cursor []any // of the last row used
	bytes  int
	cut    bool // there are more rows in the result, which did not fit
}

// read decodes rows until the page is full by bytes, and closes them.
func (p *Poller) read(t *polled, by order, rows pgx.Rows) (pageRows, error) {
	defer rows.Close()
	var out pageRows
	var extra struct {
		due, lag int64
		at       string
	}
	for rows.Next() {
		if out.cut = out.bytes >= p.cfg.PageBytes; out.cut {
			break
		}
		e, n, err := t.reader.event(t.Outbox, rows)
		if err != nil {
			return out, err
		}
		into := make([]any, n, n+3) // nil: not scanned, the decoder has it
		into = append(into, &extra.due, &extra.lag)
		if by == byCreatedAt {
			into = append(into, &extra.at)
		}
		if err := rows.Scan(into...); err != nil {
			return out, err
		}
		e.Path = event.Poll
		e.DueIn = time.Duration(extra.due) * time.Microsecond
		e.Lag = time.Duration(extra.lag) * time.Microsecond
		e.ReceivedAt = p.now()
		if p.cfg.DueIn != nil && !t.Has(table.NextAttemptAt) {
			e.DueIn = p.cfg.DueIn(e.ID)
		}
		out.events = append(out.events, e)
		out.bytes += e.Size()
		out.cursor = cursorOf(by, e, extra.at)
	}
	rows.Close()
	return out, rows.Err()
}

func cursorOf(by order, e *event.Event, at string) []any {
	switch {
	case by == byCreatedAt:
		return []any{at, e.ID.String()}
	case e.ID.UUID:
		return []any{e.ID.String()}
	default:
		return []any{e.ID.Int()}
	}
}

// event decodes the current row; n is the number of the decoder's columns.
func (r *reader) event(o *table.Outbox, rows pgx.Rows) (e *event.Event, n int, err error) {
	fds := rows.FieldDescriptions()
	n = 0
	for n < len(fds) && fds[n].Name != "cdc_relay_due" {
		n++
	}
	if err := r.describe(o, fds[:n]); err != nil {
		return nil, 0, err
	}
	r.fields = table.AppendFields(r.fields[:0], fds, rows.RawValues()[:n])
	row, err := r.decoder.Decode(r.fields)
	return row.Event, n, err
}

// describe makes a decoder for the row description, unless the last one serves.
func (r *reader) describe(o *table.Outbox, fds []pgconn.FieldDescription) error {
	cols := table.WireColumns(fds)
	if r.decoder != nil && slices.Equal(cols, r.columns) {
		return nil
	}
	d, err := o.Decoder(cols)
	if err != nil {
		return err
	}
	r.columns, r.decoder = cols, d
	return nil
}

// adapt sets the limit of the next page. It is a power of two below the configured batch (so that few different
// statements exist), and no more than fitted: what is read beyond a page's bytes is thrown away. It doubles again when a
// full page used little.
func (r *reader) adapt(rows, bytes int, cut bool, cfg Config) {
	switch {
	case cut:
		fit := 1
		for 2*fit <= rows {
			fit *= 2
		}
		r.limit = min(fit, cfg.Batch)
	case rows == r.limit && bytes < cfg.PageBytes/4:
		r.limit = min(2*r.limit, cfg.Batch)
	}
}
