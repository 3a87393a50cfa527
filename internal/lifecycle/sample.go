package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Snapshot is what a look at the tables found. Counts go to 10001 for each table; DEAD rows are left out of large tables
// that have no index for them.
type Snapshot struct {
	Tables []TableFigures `json:"tables"`
	// The rest is over all tables.
	PendingRows          int64   `json:"pending_rows"`
	OldestPendingSeconds float64 `json:"oldest_pending_age_seconds"` // 0 when nothing is PENDING
	DeadRows             int64   `json:"dead_rows"`
	DeadTuples           int64   `json:"outbox_dead_tuples"`
	OldestXminSeconds    float64 `json:"oldest_xmin_age_seconds"`
}

// TableFigures are the figures of one table.
type TableFigures struct {
	Table   string `json:"table"`
	Pending int64  `json:"pending_rows"`
	Dead    int64  `json:"dead_rows"`
	// Published is an estimate from the planner's statistics: counting what is retained would read the whole table.
	Published int64 `json:"published_rows_estimate"`
	// OldestPending is the age of the oldest PENDING row, OldestDue of the oldest that waits for no retry; 0: there is none.
	OldestPending time.Duration `json:"-"`
	OldestDue     time.Duration `json:"-"`
}

// Capped is the count at which counting stops: there may be more.
const Capped = capped

// Sampler reads the figures that metrics, health and the status page show. A Sample is one query a table and one more; it
// never reads a table in full. How often is the caller's decision: ten seconds apart is plenty.
type Sampler struct {
	pool     *pgxpool.Pool
	outboxes []*table.Outbox
	metrics  *Metrics
	countAll map[int32]bool // tables whose DEAD rows are cheap to count
}

// NewSampler makes a Sampler over the tables. It is for one goroutine at a time.
func NewSampler(pool *pgxpool.Pool, outboxes []*table.Outbox, metrics *Metrics) *Sampler {
	return &Sampler{pool: pool, outboxes: outboxes, metrics: metrics, countAll: map[int32]bool{}}
}

// Sample reads the figures and sets the gauges. After an error the gauges stay as they were.
func (s *Sampler) Sample(ctx context.Context) (Snapshot, error) {
	var all Snapshot
	oids := make([]uint32, len(s.outboxes))
	for i, o := range s.outboxes {
		oids[i] = o.OID
		f := TableFigures{Table: o.String()}
		var oldest, oldestDue float64
		countDead, err := s.countable(ctx, o)
		if err != nil {
			return Snapshot{}, fmt.Errorf("sample %s: %w", o, err)
		}
		if err := s.pool.QueryRow(ctx, sampleSQL(o, countDead)).Scan(&f.Pending, &oldest, &oldestDue, &f.Dead, &f.Published); err != nil {
			return Snapshot{}, fmt.Errorf("sample %s: %w", o, err)
		}
		f.OldestPending, f.OldestDue = seconds(oldest), seconds(oldestDue)
		all.Tables = append(all.Tables, f)
		all.PendingRows += f.Pending
		all.DeadRows += f.Dead
		all.OldestPendingSeconds = max(all.OldestPendingSeconds, oldest)
	}
	if err := s.pool.QueryRow(ctx, serverSQL, oids).Scan(&all.DeadTuples, &all.OldestXminSeconds); err != nil {
		return Snapshot{}, fmt.Errorf("sample the server: %w", err)
	}
	s.metrics.pending.Set(float64(all.PendingRows))
	s.metrics.oldestPending.Set(all.OldestPendingSeconds)
	s.metrics.deadRows.Set(float64(all.DeadRows))
	s.metrics.deadTuples.Set(float64(all.DeadTuples))
	s.metrics.oldestXmin.Set(all.OldestXminSeconds)
	return all, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// countable tells whether the table's DEAD rows can be counted without reading all of it: it has an index for them, or is
// small. Adopted tables may lack one; their DEAD rows are then not in the sample. A yes is remembered.
func (s *Sampler) countable(ctx context.Context, o *table.Outbox) (bool, error) {
	if s.countAll[o.Index] {
		return true, nil
	}
	var yes bool
	if err := s.pool.QueryRow(ctx, countableSQL, o.OID, o.StatusLiteral(table.Dead), o.Col(table.Status)).Scan(&yes); err != nil {
		return false, err
	}
	s.countAll[o.Index] = yes
	return yes, nil
}

// countableSQL looks for an index of the table $1 that is led by the status column (quoted: $3) or whose predicate has the literal
// $2, or for a table of less than 8 MiB.
const countableSQL = `SELECT
	(SELECT relkind <> 'p' AND relpages < 1024 FROM pg_class WHERE oid = $1)
	OR EXISTS (SELECT 1 FROM pg_index AS i WHERE i.indrelid = $1 AND i.indisvalid
		AND (strpos(pg_get_expr(i.indpred, i.indrelid), $2::text) > 0
			OR i.indpred IS NULL AND EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
				AND '"' || replace(a.attname, '"', '""') || '"' = $3::text)))`

// sampleSQL counts PENDING rows, tells the age in seconds of the oldest of those counted and of the oldest that is due,
// and counts DEAD rows. Both counts read their partial index; the rows with the lowest ids are the oldest, but for ids that
// commit out of order.
func sampleSQL(o *table.Outbox, countDead bool) string {
	at, by := "NULL::timestamptz", "o."+o.Col(table.ID)
	if o.Has(table.CreatedAt) {
		at = "o." + o.Col(table.CreatedAt)
	}
	if o.OrderByCreatedAt() {
		by = at
	}
	due := "true"
	if o.Has(table.NextAttemptAt) {
		due = "o." + o.Col(table.NextAttemptAt) + " <= now()"
	}
	dead := "0"
	if countDead {
		dead = countDeadSQL(o)
	}
	return fmt.Sprintf(`WITH pending AS MATERIALIZED (
			SELECT %[1]s AS at, %[8]s AS due FROM %[2]s AS o WHERE o.%[3]s = %[4]s ORDER BY %[5]s LIMIT %[6]d
		)
		SELECT (SELECT count(*) FROM pending),
			(SELECT coalesce(greatest(extract(epoch FROM now() - min(at) FILTER (WHERE isfinite(at))), 0), 0)::float8 FROM pending),
			(SELECT coalesce(greatest(extract(epoch FROM now() - min(at) FILTER (WHERE due AND isfinite(at))), 0), 0)::float8 FROM pending),
			(%[7]s),
			greatest(0, (SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class AS c
				WHERE c.oid = %[9]d OR c.oid IN (SELECT relid FROM pg_partition_tree(%[9]d) WHERE isleaf))
				- (SELECT count(*) FROM pending) - (%[7]s))`,
		at, o.Ident(), o.Col(table.Status), o.StatusLiteral(table.Pending), by, capped, dead, due, o.OID)
}

// serverSQL tells the dead tuples of the tables $1 (and their partitions), and the age in seconds of the oldest
// transaction that holds back the horizon of vacuum. Of other roles' sessions only members of pg_read_all_stats see that.
const serverSQL = `SELECT
	(SELECT coalesce(sum(pg_stat_get_dead_tuples(p.relid)), 0)::bigint
		FROM (SELECT unnest($1::oid[]) UNION SELECT t.relid FROM unnest($1::oid[]) AS r (oid), pg_partition_tree(r.oid) AS t) AS p (relid)),
	(SELECT coalesce(greatest(extract(epoch FROM now() - min(held.since)), 0), 0)::float8 FROM (
		SELECT xact_start AS since FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
		UNION ALL SELECT prepared FROM pg_prepared_xacts) AS held)`
