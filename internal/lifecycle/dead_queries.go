package lifecycle

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// conditions collects the conditions of a statement and their parameters.
type conditions struct {
	sql  []string
	args []any
}

// add adds a condition; each %d in it stands for the number of the next parameter.
func (c *conditions) add(format string, args ...any) {
	numbers := make([]any, len(args))
	for i := range args {
		numbers[i] = len(c.args) + i + 1
	}
	c.sql = append(c.sql, fmt.Sprintf(format, numbers...))
	c.args = append(c.args, args...)
}

func (c *conditions) where() string { return "WHERE " + strings.Join(c.sql, " AND ") }

// rowsSQL reads rows with what the decoder wants, then the last error, as the time since which they are what they are an
// expression, and whether they were freed. Without payload they have NULL in its place, of the same type, and it isn't even fetched.
func rowsSQL(o *table.Outbox, c *conditions, since string, payload bool, limit int) string {
	cols := o.PollColumns()
	for i, col := range cols {
		if col == o.Col(table.Payload) && !payload {
			cols[i] = fmt.Sprintf("CASE WHEN false THEN o.%[1]s END AS %[1]s", col)
		} else {
			cols[i] = "o." + col
		}
	}
	lastError := "''"
	if o.Has(table.LastError) {
		lastError = fmt.Sprintf("coalesce(o.%s::text, '')", o.Col(table.LastError))
	}
	at := "NULL::timestamptz"
	if since != "" {
		at = fmt.Sprintf("CASE WHEN isfinite(%[1]s) THEN (%[1]s)::timestamptz END", since)
	}
	cols = append(cols, lastError+" AS cdc_relay_error", at+" AS cdc_relay_since", o.FreedSQL("o")+" AS cdc_relay_freed")
	return fmt.Sprintf("SELECT %s FROM %s AS o %s ORDER BY o.%s LIMIT %d",
		strings.Join(cols, ", "), o.Ident(), c.where(), o.Col(table.ID), limit)
}

// changeSQL does something with the rows $1 that still have the status (and meet what is also asked), and names them. They are locked in the order of
// their ids, so that two who change the same rows can't deadlock; the second finds the status changed.
func changeSQL(o *table.Outbox, status, verb, set string, also ...string) string {
	id := o.Col(table.ID)
	using := "FROM"
	if verb == "DELETE FROM" {
		using = "USING"
	}
	state := strings.Join(append([]string{fmt.Sprintf("o.%s = %s", o.Col(table.Status), o.StatusLiteral(status))}, also...), " AND ")
	return fmt.Sprintf(`WITH chosen AS MATERIALIZED (
			SELECT o.%[1]s AS id FROM %[2]s AS o WHERE o.%[1]s = ANY ($1::%[3]s[]) AND %[4]s ORDER BY o.%[1]s FOR UPDATE
		) %[5]s %[2]s AS o %[6]s %[7]s chosen AS c WHERE o.%[1]s = c.id AND o.%[1]s = ANY ($1::%[3]s[]) AND %[4]s
		RETURNING o.%[1]s::text`, id, o.Ident(), o.IDType(), state, verb, set, using)
}

// requeueSQL makes the rows $1 PENDING again, with all their attempts, if they still have the status.
func requeueSQL(o *table.Outbox, status string) string {
	set := []string{fmt.Sprintf("%s = %s", o.Col(table.Status), o.StatusLiteral(table.Pending))}
	if o.Has(table.Attempts) {
		set = append(set, o.Col(table.Attempts)+" = 0")
	}
	if o.Has(table.NextAttemptAt) {
		set = append(set, o.Col(table.NextAttemptAt)+" = now()")
	}
	return changeSQL(o, status, "UPDATE", "SET "+strings.Join(set, ", "))
}

// discardSQL deletes the rows $1 if they are still DEAD.
func discardSQL(o *table.Outbox) string { return changeSQL(o, table.Dead, "DELETE FROM", "") }

// freeSQL says of the rows $1, if they are still DEAD, that nobody waits for them any more.
func freeSQL(o *table.Outbox) string {
	return changeSQL(o, table.Dead, "UPDATE", fmt.Sprintf("SET %s = 'infinity'", o.Col(table.NextAttemptAt)), "NOT "+o.FreedSQL("o"))
}

// capped is the number of rows to which a state is counted.
const capped = 10_001

// countDeadSQL counts DEAD rows, no further than capped.
func countDeadSQL(o *table.Outbox) string {
	return fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s AS o WHERE o.%s = %s LIMIT %d) AS dead",
		o.Ident(), o.Col(table.Status), o.StatusLiteral(table.Dead), capped)
}

// escapePercent makes SQL safe to be a format.
func escapePercent(sql string) string { return strings.ReplaceAll(sql, "%", "%%") }
