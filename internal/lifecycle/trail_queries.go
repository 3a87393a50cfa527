package lifecycle

import "fmt"

// findAuditSQL looks for a table $2 in the schemas $1, in their order, and says whether this role may write into it.
const findAuditSQL = `
SELECT n.nspname, pg_catalog.has_table_privilege(c.oid, 'INSERT'), current_user::text
FROM unnest($1::text[]) WITH ORDINALITY AS s (name, at)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = $2 AND c.relkind IN ('r', 'p')
ORDER BY s.at LIMIT 1`

// writeAuditSQL adds an entry; who and when are the table's defaults.
func writeAuditSQL(ident string) string {
	return fmt.Sprintf(`INSERT INTO %s (actor, command, table_name, filter, row_count, ids, reason) VALUES ($1, $2, $3, $4, $5, $6, $7)`, ident)
}

// readAuditSQL reads at most $2 entries below the id $1 (0: from the newest on).
func readAuditSQL(ident string) string {
	return fmt.Sprintf(`SELECT id, at, db_user, actor, command, table_name, filter, row_count, ids, reason FROM %s
		WHERE $1::bigint <= 0 OR id < $1::bigint ORDER BY id DESC LIMIT $2::bigint`, ident)
}
