package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// connectTimeout bounds the wait for each host of the DSN, unless it has a connect_timeout itself.
const connectTimeout = 10 * time.Second

// opened is what most commands work on: the settings, a pool, and the outbox tables as they are in the database.
type opened struct {
	cfg      *config.Config
	pool     *pgxpool.Pool
	outboxes []*table.Outbox
}

// open reads the settings, connects, and looks the tables up. The caller closes what it returns.
func (a *app) open(ctx context.Context) (*opened, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, cfg.Postgres)
	if err != nil {
		return nil, err
	}
	outboxes, err := resolve(ctx, pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &opened{cfg: cfg, pool: pool, outboxes: outboxes}, nil
}

func (o *opened) close() { o.pool.Close() }

// openPool connects the relay's own small pool, and fails when no host of the DSN answers.
func openPool(ctx context.Context, p config.Postgres) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(p.DSN)
	if err != nil {
		// The error may quote the DSN, with the password in it.
		return nil, errors.New("postgres.dsn has a pool_ parameter that can't be read")
	}
	pc.MaxConns = int32(p.MaxConns) + 1 // bounded by its tag; one more, for a pass of the poll holds its snapshot in one
	cc := pc.ConnConfig
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "cdc-relay"
	}
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	// Of several hosts only the primary is of use. With one host the commands say themselves what is wrong with it.
	if cc.ValidateConnect == nil && hosts(cc) > 1 {
		cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	// A direct DSN says that this one goes through a pooler, perhaps in transaction mode, where a prepared statement is
	// not there any more when it is used.
	if p.DirectDSN != "" && cc.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, connectError(err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, connectError(err)
	}
	return pool, nil
}

// hosts counts the hosts of a DSN. A fallback may also be the same host without TLS.
func hosts(cc *pgx.ConnConfig) int {
	seen := map[string]bool{fmt.Sprint(cc.Host, cc.Port): true}
	for _, f := range cc.Fallbacks {
		seen[fmt.Sprint(f.Host, f.Port)] = true
	}
	return len(seen)
}

// connectError adds what to do to the reason why Postgres can't be reached.
func connectError(err error) error {
	remedy := "is it running there, and can this machine reach it? See postgres.dsn"
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		remedy = connectRemedies[pg.Code]
	} else if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		remedy = "none of the hosts in postgres.dsn is a primary"
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		// It wraps one error for each attempt, on a line each; the same host may be tried with and without TLS.
		err = errors.New(oneLine(strings.ReplaceAll(err.Error(), "\n", " "), 600))
	}
	if remedy == "" {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	return fmt.Errorf("connect to postgres: %w (%s)", err, remedy)
}

// connectRemedies is by SQLSTATE.
var connectRemedies = map[string]string{
	"28P01": "check user and password in postgres.dsn",
	"28000": "check user, sslmode and pg_hba.conf for postgres.dsn",
	"3D000": "check the database in postgres.dsn",
	"53300": "raise max_connections, or lower postgres.max_conns",
}

// resolve looks up all tables and tells everything that is wrong with them.
func resolve(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config) ([]*table.Outbox, error) {
	var outboxes []*table.Outbox
	var errs []error
	for i := range cfg.Outboxes {
		o, err := resolveOne(ctx, pool, cfg, i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		outboxes = append(outboxes, o)
	}
	for _, f := range sameTables(outboxes) {
		errs = append(errs, fmt.Errorf("%s: %s (%s)", f.Subject, f.Detail, f.Remedy))
	}
	return outboxes, errors.Join(errs...)
}

func resolveOne(ctx context.Context, q table.Querier, cfg *config.Config, i int) (*table.Outbox, error) {
	o, err := table.Resolve(ctx, q, int32(i), spec(cfg.Outboxes[i]))
	if err != nil {
		return nil, err
	}
	actual := "id"
	if o.OrderByCreatedAt() {
		actual = "created_at"
	}
	if want := cfg.Outboxes[i].OrderBy; want != "" && want != actual {
		return nil, fmt.Errorf("outboxes[%d].order_by can't be %s for table %s: rows with a uuid are polled by created_at, others by id (remove the key)", i, want, o)
	}
	return o, nil
}

// presets are the mappings of known layouts. What is configured beside them wins.
var presets = map[string]map[table.Column]string{
	"default": {},
	// The table of Debezium's outbox event router.
	"debezium": {table.MessageID: "id", table.Key: "aggregateid", table.EventType: "type"},
}

// spec is the table package's form of an outbox.
func spec(o config.Outbox) table.Spec {
	columns := map[table.Column]string{}
	for c, name := range presets[o.Preset] {
		columns[c] = name
	}
	for c, name := range o.Columns {
		columns[table.Column(c)] = name
	}
	return table.Spec{
		Table: o.Table, Columns: columns, Topic: o.Topic,
		Statuses: map[string]string{
			table.Pending: o.Statuses.Pending, table.Published: o.Statuses.Published, table.Dead: o.Statuses.Dead,
		},
	}
}

// replicationConfig is the replication package's form of the settings.
func replicationConfig(cfg *config.Config) replication.Config {
	return replication.Config{
		DSN: directDSN(cfg), Slot: cfg.Replication.Slot, Publication: cfg.Replication.Publication,
		Create: cfg.Replication.Create, Temporary: cfg.Replication.Temporary, Failover: cfg.Replication.Failover,
	}
}

// directDSN reaches Postgres in a session of its own.
func directDSN(cfg *config.Config) string {
	if cfg.Postgres.DirectDSN != "" {
		return cfg.Postgres.DirectDSN
	}
	return cfg.Postgres.DSN
}
