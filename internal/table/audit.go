package table

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// AuditName is the name of the table in which the operators' commands are written down.
const AuditName = "cdc_relay_audit"

// createAudit makes the table of the audit trail. Whoever acts needs INSERT on it, and SELECT to read it.
const createAudit = `CREATE TABLE IF NOT EXISTS %s (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT now(),
  db_user    text        NOT NULL DEFAULT session_user,
  actor      text        NOT NULL,   -- user@host of the command, or the status page's caller
  command    text        NOT NULL,
  table_name text        NOT NULL,
  filter     jsonb       NOT NULL,   -- what was asked for
  row_count  bigint      NOT NULL,
  ids        text[]      NOT NULL,   -- the rows that were changed
  reason     text
);`

// AuditDDL is the statement that makes the audit table beside an outbox table, whose name is in the form of Spec.Table.
func AuditDDL(beside string) (string, error) {
	schema, _, err := parseName(beside)
	if err != nil {
		return "", err
	}
	if schema == "" {
		schema = "public"
	}
	return AuditSQL(schema), nil
}

// AuditSQL is the statement that makes the audit table in a schema.
func AuditSQL(schema string) string {
	return fmt.Sprintf(createAudit, pgx.Identifier{schema, AuditName}.Sanitize())
}

// InitAudit makes the audit table in a schema where it is missing, and tells whether it was.
func InitAudit(ctx context.Context, conn *pgx.Conn, schema string) (made bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, initLock); err != nil {
			return err
		}
		var found bool
		if err := tx.QueryRow(ctx, exists, schema, AuditName).Scan(&found); err != nil || found {
			return err
		}
		made = true
		_, err := tx.Exec(ctx, AuditSQL(schema))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("create table %s.%s: %w", schema, AuditName, err)
	}
	return made, nil
}
