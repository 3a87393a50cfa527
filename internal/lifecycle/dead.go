package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
}

// NewDead makes a Dead over the tables.
func NewDead(pool *pgxpool.Pool, outboxes []*table.Outbox) *Dead {
	return &Dead{pool: pool, outboxes: outboxes}
}

// Filter chooses rows. All that is set must hold; nothing set means all rows.
type Filter struct {
	Table     string // schema.table, or the table alone
	IDs       []string
	Topic     string  // as it is published, after the template
	Key       *string // "" is a key too
	EventType string
	// OlderThan is how long a row must have been DEAD (of a redrive: since when it is PUBLISHED).
	OlderThan time.Duration
	// Since leaves out what became DEAD (of a redrive: was PUBLISHED) before; zero: nothing.
	Since         time.Time
	ErrorContains string // a part of last_error, in any case

	// After leaves out the rows up to this one: the last of the page before.
	After *event.RowID
	// Limit is the most rows that List returns; 100 when 0. The other methods take no notice of it.
	Limit int
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
	DeadSince *time.Time     `json:"dead_since"` // null when the table can't say
	Headers   []event.Header `json:"-"`
	Payload   []byte         `json:"-"` // only of Show
}

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

// Retry makes the chosen DEAD rows PENDING, with all attempts before them; last_error stays. It returns how many it
// changed (dryRun: would change).
func (d *Dead) Retry(ctx context.Context, f Filter, dryRun bool) (int64, error) {
	n, err := d.act(ctx, f, table.Dead, dryRun, func(o *table.Outbox) string { return requeueSQL(o, table.Dead) })
	if err != nil {
		return n, fmt.Errorf("retry dead rows: %w", err)
	}
	return n, nil
}

// Discard deletes the chosen DEAD rows. It returns how many.
func (d *Dead) Discard(ctx context.Context, f Filter, dryRun bool) (int64, error) {
	n, err := d.act(ctx, f, table.Dead, dryRun, discardSQL)
	if err != nil {
		return n, fmt.Errorf("discard dead rows: %w", err)
	}
	return n, nil
}

// Redrive makes the chosen PUBLISHED rows PENDING, so that they are published again, with the same message id. It returns
// how many. It reads the whole table, in small steps.
func (d *Dead) Redrive(ctx context.Context, f Filter, dryRun bool) (int64, error) {
	n, err := d.act(ctx, f, table.Published, dryRun, func(o *table.Outbox) string { return requeueSQL(o, table.Published) })
	if err != nil {
		return n, fmt.Errorf("redrive published rows: %w", err)
	}
	return n, nil
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

// act runs a statement on the chosen rows, batch by batch. The statement compares the status again.
func (d *Dead) act(ctx context.Context, f Filter, status string, dryRun bool, sql func(*table.Outbox) string) (int64, error) {
	var total int64
	err := d.each(ctx, f, status, false, batch, func(o *table.Outbox, rows []DeadRow) (bool, error) {
		if dryRun {
			total += int64(len(rows))
			return true, nil
		}
		ids := make([]event.RowID, len(rows))
		for i, row := range rows {
			ids[i] = row.Row
		}
		tag, err := d.pool.Exec(ctx, sql(o), o.IDArray(ids))
		total += tag.RowsAffected()
		return true, err
	})
	return total, err
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

// ErrFilter is wrapped when a filter names a table that isn't served, or an id that is none.
var ErrFilter = errors.New("wrong filter")

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

// ids are those of the filter that can be ids of the table; false: there are some, but none that can.
func (f Filter) ids(o *table.Outbox) ([]event.RowID, bool) {
	var ids []event.RowID
	for _, text := range f.IDs {
		if id, err := o.ParseID(text); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, len(ids) > 0 || len(f.IDs) == 0
}

// page reads the next rows. The topic isn't compared here, since it may be made of several columns.
func (d *Dead) page(ctx context.Context, o *table.Outbox, f Filter, ids []event.RowID, after *event.RowID, status string, payload bool, limit int) ([]DeadRow, error) {
	since := deadSince(o)
	if status == table.Published {
		since = publishedAt(o)
	}
	c, err := f.conditions(o, ids, after, status, since)
	if err != nil {
		return nil, err
	}
	rows, err := d.pool.Query(ctx, rowsSQL(o, c, since, payload, limit), c.args...)
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

func (f Filter) conditions(o *table.Outbox, ids []event.RowID, after *event.RowID, status, since string) (*conditions, error) {
	c := &conditions{}
	c.sql = append(c.sql, fmt.Sprintf("o.%s = %s", o.Col(table.Status), o.StatusLiteral(status)))
	var errs []error
	need := func(col table.Column) string {
		if !o.Has(col) {
			errs = append(errs, fmt.Errorf("table %s has no column %s to filter by", o, col))
		}
		// A % in a name must not be taken for a parameter.
		return escapePercent("o." + o.Col(col))
	}
	id := escapePercent("o." + o.Col(table.ID))
	if len(ids) > 0 {
		c.add(id+" = ANY ($%d::"+o.IDType()+"[])", o.IDArray(ids))
	}
	if after != nil {
		c.add(id+" > $%d::"+o.IDType(), o.IDArg(*after))
	}
	if f.Key != nil {
		c.add(need(table.Key)+" = $%d::text", *f.Key)
	}
	if f.EventType != "" {
		c.add(need(table.EventType)+"::text = $%d::text", f.EventType)
	}
	if f.ErrorContains != "" {
		c.add("strpos(lower("+need(table.LastError)+"), lower($%d::text)) > 0", f.ErrorContains)
	}
	if f.OlderThan > 0 || !f.Since.IsZero() {
		if since == "" {
			errs = append(errs, fmt.Errorf("table %s has no column that tells the age of its rows", o))
		}
		since = escapePercent(since)
	}
	if f.OlderThan > 0 {
		c.add(since+" <= now() - $%d::bigint * interval '1 microsecond'", f.OlderThan.Microseconds())
	}
	if !f.Since.IsZero() {
		c.add(since+" >= $%d::timestamptz", f.Since)
	}
	return c, errors.Join(errs...)
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
		r.columns = len(fds) - 2
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
	into := make([]any, r.columns, r.columns+2) // nil: not scanned, the decoder has it
	return row, rows.Scan(append(into, &row.LastError, &row.DeadSince)...)
}
