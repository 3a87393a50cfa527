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

// rowsSQL reads rows with what the decoder wants, then the last error and, as the time since which they are what they
// are, an expression. Without payload they have NULL in its place, of the same type, and it isn't even fetched.
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
	cols = append(cols, lastError+" AS cdc_relay_error", at+" AS cdc_relay_since")
	return fmt.Sprintf("SELECT %s FROM %s AS o %s ORDER BY o.%s LIMIT %d",
		strings.Join(cols, ", "), o.Ident(), c.where(), o.Col(table.ID), limit)
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
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s = ANY ($1::%s[]) AND %s = %s",
		o.Ident(), strings.Join(set, ", "), o.Col(table.ID), o.IDType(), o.Col(table.Status), o.StatusLiteral(status))
}

// discardSQL deletes the rows $1 if they are still DEAD.
func discardSQL(o *table.Outbox) string {
	return fmt.Sprintf("DELETE FROM %s WHERE %s = ANY ($1::%s[]) AND %s = %s",
		o.Ident(), o.Col(table.ID), o.IDType(), o.Col(table.Status), o.StatusLiteral(table.Dead))
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
