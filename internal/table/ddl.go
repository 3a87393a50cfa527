package table

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DDLOptions say what table to make.
type DDLOptions struct {
	// Table is the name in the form of Spec.Table. Without a schema it is in "public" (DDL) or in the first schema of
	// the connection's search_path (Init).
	Table string
	// PayloadType is json (the default), jsonb, text or bytea.
	PayloadType string
}

// DDL is the statements that make an outbox table and its indexes, each ending in a semicolon.
func DDL(o DDLOptions) ([]string, error) { return nil, nil }

// Init makes the table and its indexes where they are missing. What exists is left alone. Any number of Inits may run
// at once.
func Init(ctx context.Context, conn *pgx.Conn, o DDLOptions) error { return nil }
