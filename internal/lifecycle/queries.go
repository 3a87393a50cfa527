package lifecycle

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// The writing statements lock the rows they change and no others. The status is compared in each of them; it is a
// literal, so that the partial indexes serve generic plans too. The message id is compared where the table has one as a
// uuid: by its number alone an outcome could be written into another row, which got the number again after a failover.

// same tells whether the row o is the one that f means, of the same id.
func same(o *table.Outbox) string {
	message := o.MessageUUID()
	if message == "" {
		return "true"
	}
	return fmt.Sprintf("(o.%[1]s = f.message OR o.%[1]s IS NULL)", message) // NULL: the event's is derived
}

// chosen is the end of a statement for the PENDING rows $1 with the message ids $2. The ids are there a second time for
// the planner, who knows how many elements ANY has but not how many rows unnest.
func chosen(o *table.Outbox, joined string) string {
	if o.MessageUUID() == "" {
		return fmt.Sprintf("WHERE o.%s = ANY ($1::%s[]) AND %s RETURNING o.%[1]s", o.Col(table.ID), o.IDType(), pending(o))
	}
	return fmt.Sprintf("%s unnest($1::%[3]s[], $2::uuid[]) AS f (id, message) WHERE o.%[2]s = f.id AND o.%[2]s = ANY ($1::%[3]s[]) AND %[4]s AND %[5]s RETURNING o.%[2]s",
		joined, o.Col(table.ID), o.IDType(), same(o), pending(o))
}

func pending(o *table.Outbox) string {
	return fmt.Sprintf("o.%s = %s", o.Col(table.Status), o.StatusLiteral(table.Pending))
}

// markSQL marks the rows PUBLISHED and names those that it found PENDING: see chosen.
func markSQL(o *table.Outbox) string {
	set := fmt.Sprintf("%s = %s", o.Col(table.Status), o.StatusLiteral(table.Published))
	if o.Has(table.PublishedAt) {
		set += fmt.Sprintf(", %s = now()", o.Col(table.PublishedAt))
	}
	return fmt.Sprintf("UPDATE %s AS o SET %s %s", o.Ident(), set, chosen(o, "FROM"))
}

// deleteMarkedSQL is markSQL where published rows aren't retained.
func deleteMarkedSQL(o *table.Outbox) string {
	return fmt.Sprintf("DELETE FROM %s AS o %s", o.Ident(), chosen(o, "USING"))
}

// markArgs are the parameters of markSQL and deleteMarkedSQL.
func markArgs(o *table.Outbox, outcomes []outcome) []any {
	args := []any{o.IDArray(rowIDs(outcomes))}
	if o.MessageUUID() != "" {
		args = append(args, messageIDs(outcomes))
	}
	return args
}

// failSQL writes failures down, for the rows $1 with the message ids $2 and their errors $3, whether they die of it $4 (whatever their
// number of attempts), the pause until the next attempt in microseconds $5; where the table counts attempts, $6 is the number of them that is the end (0: none).
// It names the rows that it found PENDING, with whether they are DEAD now. next_attempt_at of a DEAD row is the time of
// its death.
func failSQL(o *table.Outbox) string {
	status := o.Col(table.Status)
	dies := "f.dies"
	var set []string
	if o.Has(table.Attempts) {
		attempts := fmt.Sprintf("coalesce(o.%s, 0) + 1", o.Col(table.Attempts))
		dies = fmt.Sprintf("(f.dies OR ($6 > 0 AND %s >= $6))", attempts)
		set = append(set, fmt.Sprintf("%s = %s", o.Col(table.Attempts), attempts))
	}
	set = append(set, fmt.Sprintf("%[1]s = CASE WHEN %[2]s THEN %[3]s ELSE o.%[1]s END", status, dies, o.StatusLiteral(table.Dead)))
	if o.Has(table.NextAttemptAt) {
		set = append(set, fmt.Sprintf("%s = now() + CASE WHEN %s THEN interval '0' ELSE f.pause * interval '1 microsecond' END",
			o.Col(table.NextAttemptAt), dies))
	}
	if o.Has(table.LastError) {
		set = append(set, fmt.Sprintf("%s = f.error", o.Col(table.LastError)))
	}
	return fmt.Sprintf(`UPDATE %[1]s AS o SET %[2]s
		FROM unnest($1::%[4]s[], $2::uuid[], $3::text[], $4::boolean[], $5::bigint[]) AS f (id, message, error, dies, pause)
		WHERE o.%[3]s = f.id AND o.%[3]s = ANY ($1::%[4]s[]) AND %[6]s AND %[7]s
		RETURNING o.%[3]s, o.%[5]s = %[8]s`,
		o.Ident(), strings.Join(set, ", "), o.Col(table.ID), o.IDType(), status, same(o), pending(o), o.StatusLiteral(table.Dead))
}

// fateSQL asks, of the rows $1 with the message ids $2 and the 32-bit ids $3 of the transactions that wrote them (0: not known, and
// long since visible), for each row by its position: is it visible, is it PENDING, is it DEAD, is its transaction over
// (or another row has its id). It is one statement, since one snapshot must answer all. pg_visible_in_snapshot says
// nothing about commit or abort, only that the transaction is over.
func fateSQL(o *table.Outbox) string {
	return fmt.Sprintf(`WITH s AS MATERIALIZED (
			SELECT pg_current_snapshot() AS snap, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax)
		SELECT f.n, o.%[2]s IS NOT NULL AND %[8]s, coalesce(o.%[3]s = %[4]s, false), coalesce(o.%[3]s = %[6]s, false),
			f.xid = 0 OR pg_visible_in_snapshot((%[7]s)::text::xid8, s.snap) OR o.%[2]s IS NOT NULL
		FROM s, unnest($1::%[5]s[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS f (id, message, xid, n)
		LEFT JOIN %[1]s AS o ON o.%[2]s = f.id`,
		o.Ident(), o.Col(table.ID), o.Col(table.Status), o.StatusLiteral(table.Pending), o.IDType(), o.StatusLiteral(table.Dead),
		widened("f.xid", "s.xmax"), same(o))
}

// widened is the 64-bit id nearest to xmax of which xid is the low half: transactions are never 2^31 apart. 3 is the
// first id there is.
func widened(xid, xmax string) string {
	return fmt.Sprintf("greatest(%[2]s + (((%[1]s - %[2]s) & 4294967295) + 2147483648) %% 4294967296 - 2147483648, 3)", xid, xmax)
}

// deadSince is when a row became DEAD, of the alias o; "" when the table can't say.
func deadSince(o *table.Outbox) string { return firstTime(o, table.NextAttemptAt, table.CreatedAt) }

// publishedAt is when a row was published, of the alias o, or where the row doesn't say that when it was created; "" when
// the table says neither.
func publishedAt(o *table.Outbox) string { return firstTime(o, table.PublishedAt, table.CreatedAt) }

func firstTime(o *table.Outbox, columns ...table.Column) string {
	var have []string
	for _, c := range columns {
		if o.Has(c) {
			have = append(have, "o."+o.Col(c))
		}
	}
	switch len(have) {
	case 0:
		return ""
	case 1:
		return have[0]
	default:
		return "coalesce(" + strings.Join(have, ", ") + ")"
	}
}
