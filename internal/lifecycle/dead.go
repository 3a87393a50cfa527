package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Dead is what an operator does with DEAD rows, and with PUBLISHED ones that consumers need again. It is safe for
// concurrent use; of two who decide about the same row, one finds nothing left to do.
type Dead struct {
	pool     *pgxpool.Pool
	outboxes []*table.Outbox

	// Untraced is told, once, that what is done isn't written down, and why. It is set before the first action; nil: nobody
	// is told.
	Untraced func(Trail)
	untraced sync.Once

	pause func(context.Context, time.Duration) error
}

// NewDead makes a Dead over the tables.
func NewDead(pool *pgxpool.Pool, outboxes []*table.Outbox) *Dead {
	return &Dead{pool: pool, outboxes: outboxes, pause: pause}
}

// DeadRow is a DEAD row as an operator sees it.
type DeadRow struct {
	Row       event.RowID    `json:"-"`
	Table     string         `json:"table"`
	ID        string         `json:"id"`
	MessageID string         `json:"message_id"`
	Topic     string         `json:"topic"`
	Key       *string        `json:"key"`
	EventType string         `json:"event_type,omitempty"`
	Attempts  int32          `json:"attempts"`
	LastError string         `json:"last_error"`
	CreatedAt time.Time      `json:"created_at"`
	DeadSince *time.Time     `json:"dead_since"` // null when the table can't say, or the row was freed
	Freed     bool           `json:"freed"`      // its key goes on, whatever becomes of the row
	Headers   []event.Header `json:"-"`
	Payload   []byte         `json:"-"` // only of Show
}

// Cursor names the row, for Dead.Cursor.
func (r DeadRow) Cursor() string { return r.Table + "/" + r.ID }

// batch is the number of rows that an action takes in one transaction.
const batch = 1000

// List returns DEAD rows in the order of table and id, without payload.
func (d *Dead) List(ctx context.Context, f Filter) ([]DeadRow, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	var all []DeadRow
	err := d.each(ctx, f, table.Dead, false, limit, func(_ *table.Outbox, rows []DeadRow) (bool, error) {
		all = append(all, rows[:min(len(rows), limit-len(all))]...)
		return len(all) < limit, nil
	})
	return all, err
}

// Show returns the DEAD rows with this id, with payload and headers: one of each table that has it, or of the one named.
func (d *Dead) Show(ctx context.Context, tableName, id string) ([]DeadRow, error) {
	var all []DeadRow
	err := d.each(ctx, Filter{Table: tableName, IDs: []string{id}}, table.Dead, true, 1, func(_ *table.Outbox, rows []DeadRow) (bool, error) {
		all = append(all, rows...)
		return true, nil
	})
	return all, err
}

// Count is the number of DEAD rows; each table is counted to 10001.
func (d *Dead) Count(ctx context.Context) (int64, error) {
	var total int64
	for _, o := range d.outboxes {
		var n int64
		if err := d.pool.QueryRow(ctx, countDeadSQL(o)).Scan(&n); err != nil {
			return total, fmt.Errorf("count the dead rows of %s: %w", o, err)
		}
		total += n
	}
	return total, nil
}

// each calls fn with the chosen rows, page by page, until it says no.
func (d *Dead) each(ctx context.Context, f Filter, status string, payload bool, page int, fn func(*table.Outbox, []DeadRow) (bool, error)) error {
	outboxes, err := d.chosen(f)
	if err != nil {
		return err
	}
	for _, o := range outboxes {
		ids, ok := f.ids(o)
		if !ok {
			continue
		}
		var after *event.RowID
		if f.After != nil && f.After.Table == o.Index {
			after = f.After
		}
		for {
			rows, err := d.page(ctx, o, f, ids, after, status, payload, page)
			if err != nil {
				return fmt.Errorf("read rows of %s: %w", o, err)
			}
			if len(rows) == 0 {
				break
			}
			last := rows[len(rows)-1].Row // a copy: DeleteFunc moves the rows
			after = &last
			full := len(rows) == page
			if f.Topic != "" {
				rows = slices.DeleteFunc(rows, func(r DeadRow) bool { return r.Topic != f.Topic })
			}
			if more, err := fn(o, rows); err != nil || !more {
				return err
			}
			if !full {
				break
			}
		}
	}
	return nil
}

// chosen is the tables that the filter leaves.
func (d *Dead) chosen(f Filter) ([]*table.Outbox, error) {
	var outboxes []*table.Outbox
	var names []string
	for _, o := range d.outboxes {
		names = append(names, o.String())
		if (f.Table == "" || f.Table == o.String() || f.Table == o.Name) && (f.After == nil || f.After.Table <= o.Index) {
			outboxes = append(outboxes, o)
		}
	}
	if f.Table != "" && !slices.ContainsFunc(d.outboxes, func(o *table.Outbox) bool { return f.Table == o.String() || f.Table == o.Name }) {
		return nil, fmt.Errorf("%w: there is no outbox table %q; configured are %q", ErrFilter, f.Table, names)
	}
	for _, id := range f.IDs {
		var errs []error
		for _, o := range outboxes {
			_, err := o.ParseID(id)
			errs = append(errs, err)
		}
		if len(errs) > 0 && !slices.Contains(errs, nil) {
			return nil, fmt.Errorf("%w: %w", ErrFilter, errors.Join(errs...))
		}
	}
	return outboxes, nil
}

// page reads the next rows.
func (d *Dead) page(ctx context.Context, o *table.Outbox, f Filter, ids []event.RowID, after *event.RowID, status string, payload bool, limit int) ([]DeadRow, error) {
	c, err := f.conditions(o, ids, after, status)
	if err != nil {
		return nil, err
	}
	rows, err := d.pool.Query(ctx, rowsSQL(o, c, sinceWhen(o, status), payload, limit), c.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []DeadRow
	r := rowReader{table: o}
	for rows.Next() {
		row, err := r.read(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// rowReader makes DeadRows of a query's rows.
type rowReader struct {
	table   *table.Outbox
	decoder *table.Decoder
	columns int
	fields  []table.Field
}

func (r *rowReader) read(rows pgx.Rows) (DeadRow, error) {
	fds := rows.FieldDescriptions()
	if r.decoder == nil {
		var err error
		r.columns = len(fds) - 3
		if r.decoder, err = r.table.Decoder(table.WireColumns(fds[:r.columns])); err != nil {
			return DeadRow{}, err
		}
	}
	r.fields = table.AppendFields(r.fields[:0], fds, rows.RawValues()[:r.columns])
	decoded, err := r.decoder.Decode(r.fields)
	if err != nil {
		return DeadRow{}, err
	}
	e := decoded.Event
	row := DeadRow{
		Row: e.ID, Table: r.table.String(), ID: e.ID.String(), MessageID: event.FormatUUID(e.MessageID), Topic: e.Topic,
		EventType: e.Type, Attempts: e.Attempts, CreatedAt: e.CreatedAt, Headers: e.Headers, Payload: e.Payload,
	}
	if e.HasKey {
		row.Key = &e.Key
	}
	into := make([]any, r.columns, r.columns+3) // nil: not scanned, the decoder has it
	return row, rows.Scan(append(into, &row.LastError, &row.DeadSince, &row.Freed)...)
}
