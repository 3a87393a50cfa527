package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Trail is where the operators' deeds are written down: the audit table, as it was found.
type Trail struct {
	ident string // quoted schema.table; "" when nothing can be written down
	// Problem is why nothing can be written down, and Remedy the SQL that mends it; empty when all is well.
	Problem, Remedy string
}

// Deed is one entry of the audit trail: what one transaction changed in one table.
type Deed struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	DBUser  string          `json:"db_user"`
	Actor   string          `json:"actor"`
	Command string          `json:"command"`
	Table   string          `json:"table"`
	Filter  json.RawMessage `json:"filter"`
	Rows    int64           `json:"rows"`
	IDs     []string        `json:"ids"`
	Reason  *string         `json:"reason"`
}

// Trail looks for the audit table: in the schemas of the outbox tables, in their order.
func (d *Dead) Trail(ctx context.Context) (Trail, error) {
	if len(d.outboxes) == 0 {
		return Trail{Problem: "there is no outbox table"}, nil
	}
	var schemas []string
	for _, o := range d.outboxes {
		schemas = append(schemas, o.Schema)
	}
	var schema, user string
	var may bool
	switch err := d.pool.QueryRow(ctx, findAuditSQL, schemas, table.AuditName).Scan(&schema, &may, &user); {
	case errors.Is(err, pgx.ErrNoRows):
		return Trail{
			Problem: fmt.Sprintf("there is no table %s.%s: who retries, discards, frees or redrives rows is written down nowhere", schemas[0], table.AuditName),
			Remedy:  table.AuditSQL(schemas[0]),
		}, nil
	case err != nil:
		return Trail{}, fmt.Errorf("look for the audit table: %w", err)
	}
	ident := pgx.Identifier{schema, table.AuditName}.Sanitize()
	if !may {
		return Trail{
			Problem: fmt.Sprintf("the role %s may not write into %s.%s: what it does to rows is written down nowhere", user, schema, table.AuditName),
			Remedy:  fmt.Sprintf("GRANT INSERT, SELECT ON %s TO %s;", ident, pgx.Identifier{user}.Sanitize()),
		}, nil
	}
	return Trail{ident: ident}, nil
}

// trail is Trail for a command that changes rows: what is wrong with it is told once, and the command goes on without.
func (d *Dead) trail(ctx context.Context) (Trail, error) {
	t, err := d.Trail(ctx)
	if err == nil && t.ident == "" && d.Untraced != nil {
		d.untraced.Do(func() { d.Untraced(t) })
	}
	return t, err
}

// write adds an entry, within the transaction of the change itself.
func (t Trail) write(ctx context.Context, tx pgx.Tx, command string, o *table.Outbox, f Filter, by Order, ids []string) error {
	if t.ident == "" {
		return nil
	}
	var reason *string
	if by.Reason != "" {
		reason = &by.Reason
	}
	actor := by.Actor
	if actor == "" {
		actor = "unknown"
	}
	if _, err := tx.Exec(ctx, writeAuditSQL(t.ident), actor, command, o.String(), f.words(), len(ids), ids, reason); err != nil {
		return fmt.Errorf("write the audit trail: %w", err)
	}
	return nil
}

// ErrNoTrail is wrapped when there is no audit trail to read.
var ErrNoTrail = errors.New("there is no audit trail")

// Log returns entries of the audit trail, the newest first: at most limit, older than the entry before (0: from the newest).
func (d *Dead) Log(ctx context.Context, before int64, limit int) ([]Deed, error) {
	var schemas []string
	for _, o := range d.outboxes {
		schemas = append(schemas, o.Schema)
	}
	var schema string
	err := d.pool.QueryRow(ctx, findAuditSQL, schemas, table.AuditName).Scan(&schema, nil, nil)
	if errors.Is(err, pgx.ErrNoRows) {
		t, err := d.Trail(ctx)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s; run: %s", ErrNoTrail, t.Problem, t.Remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the audit table: %w", err)
	}
	rows, err := d.pool.Query(ctx, readAuditSQL(pgx.Identifier{schema, table.AuditName}.Sanitize()), before, limit)
	if err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	deeds, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Deed])
	if err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	return deeds, nil
}
