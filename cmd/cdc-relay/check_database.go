package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// holders are who has kept dead rows from being vacuumed for more than $1 seconds, the oldest first. Of other roles'
// sessions only members of pg_read_all_stats see that.
const holders = `
SELECT * FROM (
  SELECT 'the session with pid ' || pid || ' (application_name "' || application_name || '", ' || coalesce(state, 'unknown') || ')',
         'SELECT pg_terminate_backend(' || pid || ');', extract(epoch FROM now() - xact_start)::bigint AS seconds
  FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  UNION ALL
  SELECT 'the prepared transaction ' || quote_literal(gid), 'COMMIT PREPARED ' || quote_literal(gid) || '; or ROLLBACK PREPARED',
         extract(epoch FROM now() - prepared)::bigint
  FROM pg_prepared_xacts WHERE database = current_database()) h
WHERE seconds >= $1 ORDER BY seconds DESC LIMIT 3`

// longTransaction is how long a transaction may be open before check speaks of it.
const longTransaction = 5 * time.Minute

// checkHorizon names what lets dead rows pile up in the outbox, and so makes the poll slower and slower.
func checkHorizon(ctx context.Context, pool *pgxpool.Pool, atLeast time.Duration) []preflight.Finding {
	const subject = "old transactions"
	rows, err := pool.Query(ctx, holders, int64(atLeast.Seconds()))
	if err != nil {
		return []preflight.Finding{{Severity: preflight.Warning, Subject: subject, Detail: "can't look for them: " + err.Error()}}
	}
	var who, remedy string
	var seconds int64
	var findings []preflight.Finding
	_, err = pgx.ForEachRow(rows, []any{&who, &remedy, &seconds}, func() error {
		findings = append(findings, preflight.Finding{Severity: preflight.Warning, Subject: subject, Remedy: remedy,
			Detail: fmt.Sprintf("%s has been open for %s: dead rows can't be vacuumed meanwhile, and polls become slower", who, age(time.Duration(seconds)*time.Second))})
		return nil
	})
	if err != nil {
		findings = append(findings, preflight.Finding{Severity: preflight.Warning, Subject: subject, Detail: "can't look for them: " + err.Error()})
	}
	if len(findings) == 0 {
		findings = []preflight.Finding{{Subject: subject, Detail: "none that has kept dead rows from being vacuumed for " + age(atLeast)}}
	}
	return findings
}

// recentTopics are the topics of the last rows of a table: those that the sink can be asked about in advance.
func recentTopics(ctx context.Context, pool *pgxpool.Pool, o *table.Outbox) ([]string, error) {
	columns := o.PollColumns()
	for i, c := range columns {
		if c == o.Col(table.Payload) {
			columns[i] = "CASE WHEN false THEN " + c + " END AS " + c // of the same type, and not read
		}
	}
	order := o.Col(table.ID)
	if o.OrderByCreatedAt() {
		order = o.Col(table.CreatedAt)
	}
	rows, err := pool.Query(ctx, fmt.Sprintf("SELECT %s FROM %s ORDER BY %s DESC LIMIT 1000", strings.Join(columns, ", "), o.Ident(), order))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	topics := map[string]bool{}
	var fields []table.Field
	var decoder *table.Decoder
	for rows.Next() {
		if decoder == nil {
			if decoder, err = o.Decoder(table.WireColumns(rows.FieldDescriptions())); err != nil {
				return nil, err
			}
		}
		fields = table.AppendFields(fields[:0], rows.FieldDescriptions(), rows.RawValues())
		row, err := decoder.Decode(fields)
		if err != nil {
			return nil, err
		}
		if row.Event.Invalid == nil && row.Event.Topic != "" {
			topics[row.Event.Topic] = true
		}
	}
	return slices.Sorted(maps.Keys(topics)), rows.Err()
}
