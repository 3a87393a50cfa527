package lifecycle

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// The purging statements lock only rows that nobody else has locked, and each is its own transaction. The DELETE itself
// names state and age, not only an id that was chosen a moment ago: a row that was changed in between stays.

// olderThan is the condition that a time is more than $1 microseconds ago, by the database's clock.
func olderThan(at string) string { return at + " < now() - $1::bigint * interval '1 microsecond'" }

// purgeSQL looks at the next rows in the order of id, at most $2 and, with after, behind $3, and deletes those that are
// PUBLISHED for longer than $1 microseconds (dry: counts them). It returns how many rows it looked at, how many of them
// are young (created less than $1 ago, so that they can't be due), how many it deleted, the last id, and the first
// young one's. (The ids are qualified in ORDER BY: a bare id would mean the text beside it.)
func purgeSQL(o *table.Outbox, after, dry bool) string {
	id := o.Col(table.ID)
	due := fmt.Sprintf("o.%s = %s AND %s", o.Col(table.Status), o.StatusLiteral(table.Published), olderThan(publishedAt(o)))
	young := "false" // where the order of id says nothing about time, it would end the walk anywhere
	if !o.OrderByCreatedAt() {
		since := o.Col(table.CreatedAt)
		if since == "" {
			since = o.Col(table.PublishedAt)
		}
		young = fmt.Sprintf("coalesce(NOT %s, false)", olderThan("o."+since))
	}
	where := ""
	if after {
		where = fmt.Sprintf("WHERE o.%s > $3::%s", id, o.IDType())
	}
	gone := fmt.Sprintf(`DELETE FROM %[2]s AS o WHERE o.%[1]s = ANY (ARRAY(
				SELECT o.%[1]s FROM %[2]s AS o WHERE o.%[1]s = ANY (ARRAY(SELECT id FROM chunk WHERE due)) FOR UPDATE SKIP LOCKED
			)) AND %[3]s RETURNING 1`, id, o.Ident(), due)
	if dry {
		gone = `SELECT 1 FROM chunk WHERE due`
	}
	return fmt.Sprintf(`WITH chunk AS MATERIALIZED (
			SELECT o.%[1]s AS id, %[3]s AS due, %[4]s AS young FROM %[2]s AS o %[5]s ORDER BY o.%[1]s LIMIT $2
		), gone AS (%[6]s)
		SELECT (SELECT count(*) FROM chunk), (SELECT count(*) FROM chunk WHERE young), (SELECT count(*) FROM gone),
			coalesce((SELECT c.id::text FROM chunk AS c ORDER BY c.id DESC LIMIT 1), ''),
			coalesce((SELECT c.id::text FROM chunk AS c WHERE young ORDER BY c.id LIMIT 1), '')`,
		id, o.Ident(), due, young, where, gone)
}

// purgeDeadSQL deletes rows, at most $2, that are DEAD for longer than $1 microseconds (dry: counts all of them).
func purgeDeadSQL(o *table.Outbox, dry bool) string {
	id := o.Col(table.ID)
	due := fmt.Sprintf("o.%s = %s AND %s", o.Col(table.Status), o.StatusLiteral(table.Dead), olderThan(deadSince(o)))
	if dry {
		return fmt.Sprintf("SELECT count(*) FROM %s AS o WHERE %s AND $2::integer > 0", o.Ident(), due)
	}
	return fmt.Sprintf(`WITH gone AS (DELETE FROM %[2]s AS o WHERE o.%[1]s = ANY (ARRAY(
			SELECT o.%[1]s FROM %[2]s AS o WHERE %[3]s ORDER BY o.%[1]s LIMIT $2 FOR UPDATE SKIP LOCKED
		)) AND %[3]s RETURNING 1)
		SELECT count(*) FROM gone`, id, o.Ident(), due)
}
