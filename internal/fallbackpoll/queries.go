package fallbackpoll

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// The statements take no row locks. The status is a literal in all of them: as a parameter it would keep a generic plan
// from the partial index. The limit is a literal too (it takes about ten values), so that the planner knows how few rows
// are wanted and never sorts. Columns are qualified where the name of an output column could be meant instead.

// walSQL is the server's WAL insert position. It fails on a server in recovery, where there is nothing to relay.
const walSQL = `SELECT pg_current_wal_insert_lsn()::text`

// nudgeSQL writes a commit record and has it flushed, whatever tables exist and without a privilege on any.
const nudgeSQL = `SELECT pg_logical_emit_message(true, 'cdc-relay', '')`

// maxDue and maxLag bound what is computed of a timestamp, in seconds, so that no value a table can hold (infinity, the
// year 294276) makes the page fail.
const (
	maxDue = 366 * 24 * 3600
	maxLag = 10 * 366 * 24 * 3600
)

// order is how the rows of a stretch of a pass follow one another.
type order uint8

const (
	byID order = iota
	byCreatedAt
	undated // the rows without created_at of a table in the order of created_at, which would never be found there
)

func pending(o *table.Outbox) string {
	return fmt.Sprintf("FROM %s AS o WHERE o.%s = %s", o.Ident(), o.Col(table.Status), o.StatusLiteral(table.Pending))
}

// boundSQL is the highest PENDING row that is visible; no row when there is none. $1: the floor, where there is one.
func boundSQL(o *table.Outbox, floored bool) string {
	id, at := o.Col(table.ID), o.Col(table.CreatedAt)
	if o.OrderByCreatedAt() {
		return fmt.Sprintf("SELECT o.%s::text %s AND o.%[1]s IS NOT NULL ORDER BY o.%[1]s DESC, o.%[3]s DESC LIMIT 1", at, pending(o), id)
	}
	above := ""
	if floored {
		above = fmt.Sprintf(" AND o.%s > $1::bigint", id)
	}
	return fmt.Sprintf("SELECT o.%s::bigint %s%s ORDER BY o.%[1]s DESC LIMIT 1", id, pending(o), above)
}

// undatedSQL tells whether a table in the order of created_at has PENDING rows without one.
func undatedSQL(o *table.Outbox) string {
	return fmt.Sprintf("SELECT EXISTS (SELECT 1 %s AND o.%s IS NULL)", pending(o), o.Col(table.CreatedAt))
}

// pageSQL is the next page: the decoder's columns, then the time to the next attempt and the age in microseconds, then
// the cursor's created_at as text (exact in both directions, for each timestamp type). The parameters are the bound
// (unless undated) and, with after, the cursor.
func pageSQL(o *table.Outbox, by order, after bool, limit int) string {
	id, at := "o."+o.Col(table.ID), "o."+o.Col(table.CreatedAt)
	var where, sort string
	switch by {
	case byID:
		where, sort = id+" <= $1::bigint", id
		if after {
			where += " AND " + id + " > $2::bigint"
		}
	case byCreatedAt:
		where, sort = at+" <= $1", at+", "+id
		if after {
			where += fmt.Sprintf(" AND (%s, %s) > ($2, $3)", at, id)
		}
	case undated:
		where, sort = at+" IS NULL", id
		if after {
			where += " AND " + id + " > $1"
		}
	}
	cols := append(o.PollColumns(), dueSQL(o)+" AS cdc_relay_due", lagSQL(o)+" AS cdc_relay_lag")
	if by == byCreatedAt {
		cols = append(cols, at+"::text AS cdc_relay_cursor")
	}
	return fmt.Sprintf("SELECT %s %s AND %s ORDER BY %s LIMIT %d", strings.Join(cols, ", "), pending(o), where, sort, limit)
}

func dueSQL(o *table.Outbox) string {
	if !o.Has(table.NextAttemptAt) {
		return "0::bigint"
	}
	at := "o." + o.Col(table.NextAttemptAt)
	return fmt.Sprintf(`CASE WHEN %[1]s > statement_timestamp() + interval '%[2]d seconds' THEN %[2]d000000
		WHEN %[1]s > statement_timestamp() THEN (extract(epoch FROM %[1]s - statement_timestamp()) * 1000000)::bigint ELSE 0 END::bigint`, at, maxDue)
}

func lagSQL(o *table.Outbox) string {
	if !o.Has(table.CreatedAt) {
		return "0::bigint"
	}
	at := "o." + o.Col(table.CreatedAt)
	return fmt.Sprintf(`CASE WHEN %[1]s < statement_timestamp() - interval '%[2]d seconds' THEN %[2]d000000
		WHEN %[1]s < statement_timestamp() THEN (extract(epoch FROM statement_timestamp() - %[1]s) * 1000000)::bigint ELSE 0 END::bigint`, at, maxLag)
}

// statesSQL is those of the rows $1 that are visible, and whether they are PENDING.
func statesSQL(o *table.Outbox) string {
	return fmt.Sprintf("SELECT %[1]s, %[4]s IS NOT DISTINCT FROM %[5]s FROM %[2]s WHERE %[1]s = ANY ($1::%[3]s[])",
		o.Col(table.ID), o.Ident(), o.IDType(), o.Col(table.Status), o.StatusLiteral(table.Pending))
}

// deadKeysSQL is the keys of DEAD rows that were not freed. It reads the index of DEAD rows, and each of them.
func deadKeysSQL(o *table.Outbox) string {
	return fmt.Sprintf("SELECT DISTINCT o.%[1]s::text FROM %[2]s AS o WHERE o.%[3]s = %[4]s AND o.%[1]s IS NOT NULL AND NOT %[5]s",
		o.Col(table.Key), o.Ident(), o.Col(table.Status), o.StatusLiteral(table.Dead), o.FreedSQL("o"))
}

// highestSQL is the highest id above $1 that is visible, whatever its state. It walks the primary key from its end.
func highestSQL(o *table.Outbox) string {
	return fmt.Sprintf("SELECT o.%s::bigint FROM %s AS o WHERE o.%[1]s > $1::bigint ORDER BY o.%[1]s DESC LIMIT 1", o.Col(table.ID), o.Ident())
}
