package lifecycle

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Filter chooses rows. All that is set must hold; nothing set means all rows.
type Filter struct {
	Table     string // schema.table, or the table alone
	IDs       []string
	Topic     string  // as it is published, after the template
	Key       *string // "" is a key too
	EventType string
	// OlderThan is how long a row must have been DEAD (of a redrive: since when it is PUBLISHED).
	OlderThan time.Duration
	// Since leaves out what became DEAD (of a redrive: was PUBLISHED) before, Until what did then or later; zero: nothing.
	Since, Until time.Time
	// ErrorClass is the reason that last_error begins with, as "too_large" in "too_large: 2 MiB".
	ErrorClass    string
	ErrorContains string // a part of last_error, in any case

	// After leaves out the rows up to this one: the last of the page before.
	After *event.RowID
	// Limit is the most rows that List returns; 100 when 0. The other methods take no notice of it.
	Limit int
}

// Empty says that the filter chooses all rows.
func (f Filter) Empty() bool { return len(f.words()) == 0 }

// words is what is set, as the audit trail keeps it.
func (f Filter) words() map[string]any {
	w := map[string]any{}
	add := func(name string, set bool, value any) {
		if set {
			w[name] = value
		}
	}
	add("table", f.Table != "", f.Table)
	add("ids", len(f.IDs) > 0, f.IDs)
	add("topic", f.Topic != "", f.Topic)
	add("key", f.Key != nil, f.Key)
	add("type", f.EventType != "", f.EventType)
	add("older_than", f.OlderThan > 0, f.OlderThan.String())
	add("since", !f.Since.IsZero(), f.Since)
	add("until", !f.Until.IsZero(), f.Until)
	add("error_class", f.ErrorClass != "", f.ErrorClass)
	add("error", f.ErrorContains != "", f.ErrorContains)
	return w
}

// ErrFilter is wrapped when a filter names a table that isn't served, or an id that is none.
var ErrFilter = errors.New("wrong filter")

// Cursor reads what DeadRow.Cursor wrote, for Filter.After.
func (d *Dead) Cursor(text string) (*event.RowID, error) {
	at := strings.LastIndexByte(text, '/')
	for _, o := range d.outboxes {
		if at < 0 || o.String() != text[:at] {
			continue
		}
		id, err := o.ParseID(text[at+1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFilter, err)
		}
		return &id, nil
	}
	return nil, fmt.Errorf("%w: %q is no row: write schema.table/id, as dead list tells it", ErrFilter, text)
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

// conditions collects what the filter asks of a table's rows. The topic isn't compared here, unless it is a column's text,
// since it may be made of several columns.
func (f Filter) conditions(o *table.Outbox, ids []event.RowID, after *event.RowID, status string) (*conditions, error) {
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
	if col := o.TopicColumn(); f.Topic != "" && col != "" {
		c.add(escapePercent("o."+col)+"::text = $%d::text", f.Topic)
	}
	if f.Key != nil {
		c.add(need(table.Key)+"::text = $%d::text", *f.Key)
	}
	if f.EventType != "" {
		c.add(need(table.EventType)+"::text = $%d::text", f.EventType)
	}
	if f.ErrorContains != "" {
		c.add("strpos(lower("+need(table.LastError)+"::text), lower($%d::text)) > 0", f.ErrorContains)
	}
	if f.ErrorClass != "" {
		c.add("split_part("+need(table.LastError)+"::text, ':', 1) = $%d::text", f.ErrorClass)
	}
	return c, errors.Join(append(errs, f.times(c, o, sinceWhen(o, status)))...)
}

// times adds the conditions about the age; since is the time from which a row is what it is.
func (f Filter) times(c *conditions, o *table.Outbox, since string) error {
	if f.OlderThan <= 0 && f.Since.IsZero() && f.Until.IsZero() {
		return nil
	}
	if since == "" {
		return fmt.Errorf("table %s has no column that tells the age of its rows", o)
	}
	since = escapePercent(since)
	if f.OlderThan > 0 {
		c.add(since+" <= now() - $%d::bigint * interval '1 microsecond'", f.OlderThan.Microseconds())
	}
	if !f.Since.IsZero() {
		c.add(since+" >= $%d::timestamptz", f.Since)
	}
	if !f.Until.IsZero() {
		c.add(since+" < $%d::timestamptz", f.Until)
	}
	return nil
}

// sinceWhen is the expression for the time from which a row has its status.
func sinceWhen(o *table.Outbox, status string) string {
	if status == table.Published {
		return publishedAt(o)
	}
	return deadSince(o)
}
