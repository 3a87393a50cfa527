package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func (a *app) initCommand() *cobra.Command {
	var print bool
	var payloadType string
	cmd := &cobra.Command{
		Use: "init", Short: "Create the outbox table, its indexes, the publication and the slot", Args: cobra.NoArgs,
		Long: `Create what is missing: the outbox tables with their indexes, the table of the audit trail beside the first of them, the
publication and the replication slot. What exists is left as it is, so it can be run at any time. A table that is mapped (columns, statuses, or another preset than default)
is yours, and isn't created.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(table.PayloadTypes, payloadType) {
				return usagef("--payload-type must be one of %s, not %q", strings.Join(table.PayloadTypes, ", "), payloadType)
			}
			if print {
				return a.printInit(payloadType)
			}
			return a.initialise(cmd.Context(), payloadType)
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the SQL instead of running it; needs no database")
	cmd.Flags().StringVar(&payloadType, "payload-type", table.PayloadTypes[0], "`TYPE` of the payload column: "+strings.Join(table.PayloadTypes, ", "))
	_ = cmd.RegisterFlagCompletionFunc("payload-type", cobra.FixedCompletions(table.PayloadTypes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// printInit prints all statements, in the order in which they have to be run.
func (a *app) printInit(payloadType string) error {
	cfg, err := a.config(config.WithoutDSN())
	if err != nil {
		return err
	}
	var statements, tables []string
	for _, o := range cfg.Outboxes {
		ident, err := table.Ident(o.Table)
		if err != nil {
			return err
		}
		tables = append(tables, ident)
		if adopted(o) {
			continue
		}
		ddl, err := table.DDL(table.DDLOptions{Table: o.Table, PayloadType: payloadType})
		if err != nil {
			return err
		}
		statements = append(statements, ddl...)
	}
	trail, err := table.AuditDDL(cfg.Outboxes[0].Table)
	if err != nil {
		return err
	}
	statements = append(statements, trail)
	if cfg.Replication.Enabled {
		statements = append(statements, replication.Statements(replicationConfig(cfg), tables)...)
	}
	for _, s := range statements {
		fmt.Fprintln(a.out, s)
	}
	return nil
}

// adopted says that the table is somebody's own, which init must not make.
func adopted(o config.Outbox) bool {
	words := config.Statuses{Pending: table.Pending, Published: table.Published, Dead: table.Dead}
	return o.Preset != "default" || len(o.Columns) > 0 || o.Statuses != words
}

// initialise makes what is missing, and says of each part what it did.
func (a *app) initialise(ctx context.Context, payloadType string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	pool, err := openPool(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, o := range cfg.Outboxes {
		if adopted(o) {
			continue
		}
		made, err := makeTable(ctx, pool, table.DDLOptions{Table: o.Table, PayloadType: payloadType})
		if err != nil {
			return err
		}
		a.did("table "+o.Table, made)
	}
	outboxes, err := resolve(ctx, pool, cfg)
	if err != nil {
		return err
	}
	a.initTrail(ctx, pool, outboxes[0].Schema)
	if !cfg.Replication.Enabled {
		return nil
	}
	return a.initReplication(ctx, pool, cfg, outboxes)
}

// initTrail makes the table of the audit trail. Nothing depends on it, so what is in its way is only told.
func (a *app) initTrail(ctx context.Context, pool *pgxpool.Pool, schema string) {
	conn, err := pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		var made bool
		if made, err = table.InitAudit(ctx, conn.Conn(), schema); err == nil {
			a.did("table "+schema+"."+table.AuditName, made)
			return
		}
	}
	a.complain("%v; everything works without it, but nobody can see who retried or discarded rows; as the schema's owner, run: %s", err, table.AuditSQL(schema))
}

func (a *app) did(what string, made bool) {
	fmt.Fprintf(a.out, "%s: %s\n", what, map[bool]string{true: "created", false: "exists"}[made])
}

// makeTable makes a table and its indexes where they are missing, and tells whether the table was.
func makeTable(ctx context.Context, pool *pgxpool.Pool, o table.DDLOptions) (made bool, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, connectError(err)
	}
	defer conn.Release()
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NULL", o.Table).Scan(&made); err != nil {
		return false, fmt.Errorf("look for table %s: %w", o.Table, err)
	}
	return made, table.Init(ctx, conn.Conn(), o)
}

// initReplication makes the publication and, after it, the slot: in the other order the stream would be broken.
func (a *app) initReplication(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config, outboxes []*table.Outbox) error {
	rc := replicationConfig(cfg)
	rc.Create = true // whatever the relay may do by itself: here a person asks for it
	made, err := replication.EnsurePublication(ctx, pool, rc, outboxes)
	if err != nil {
		return withoutStream(err)
	}
	a.did("publication "+rc.Publication, made)
	if rc.Temporary {
		fmt.Fprintf(a.out, "slot %s: temporary, the relay makes it for as long as it runs\n", rc.Slot)
		return nil
	}
	made, err = replication.EnsureSlot(ctx, rc, made)
	if err != nil {
		return withoutStream(err)
	}
	a.did("slot "+rc.Slot, made)
	return nil
}

// withoutStream says that all is not lost.
func withoutStream(err error) error {
	return fmt.Errorf("%w\nthe tables are ready; without a stream the relay polls them, which is correct and slower", err)
}
