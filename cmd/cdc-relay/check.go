package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// sinkCheckTimeout bounds the look at the sink.
const sinkCheckTimeout = 20 * time.Second

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check", Short: "Look at everything the relay needs, and say what to do about what is missing", Args: cobra.NoArgs,
		Long: `Look at the database, the outbox tables, the publication, the slot and the sink. It changes nothing, and can be run
beside a running relay. Exit code 1 means that the relay couldn't run like this.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.check(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) check(ctx context.Context, asJSON bool) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	findings, topics := checkPostgres(ctx, cfg)
	findings = append(findings, a.checkSink(ctx, cfg, topics)...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	worst := preflight.Worst(findings)
	if asJSON {
		err = printJSON(a.out, struct {
			Worst    preflight.Severity  `json:"worst"`
			Findings []preflight.Finding `json:"findings"`
		}{worst, findings})
	} else {
		err = a.printFindings(findings)
	}
	if err == nil && worst == preflight.Failure {
		err = errReported
	}
	return err
}

// checkPostgres looks at all that is in the database, and finds the topics of recent rows.
func checkPostgres(ctx context.Context, cfg *config.Config) (findings []preflight.Finding, topics []string) {
	pool, err := openPool(ctx, cfg.Postgres)
	if err != nil {
		return []preflight.Finding{failure("postgres", err.Error(), "")}, nil
	}
	defer pool.Close()
	findings = append(findings, preflight.Finding{Subject: "postgres", Detail: "connected"})
	findings = append(findings, checkDirect(ctx, cfg)...)
	outboxes, problems := checkTables(ctx, pool, cfg)
	switch {
	case cfg.Replication.Enabled:
		findings = append(findings, replication.Check(ctx, pool, replicationConfig(cfg), outboxes)...)
	default:
		findings = append(findings, preflight.Finding{Severity: preflight.Note, Subject: "replication",
			Detail: "it is switched off: rows are found by polling only", Remedy: "replication.enabled: true"})
	}
	findings = append(findings, problems...)
	findings = append(findings, checkHorizon(ctx, pool, longTransaction)...)
	for _, o := range outboxes {
		found, err := recentTopics(ctx, pool, o)
		if err != nil {
			findings = append(findings, preflight.Finding{Severity: preflight.Warning, Subject: "table " + o.String(), Detail: "its rows can't be read: " + err.Error()})
		}
		topics = append(topics, found...)
	}
	return findings, topics
}

func failure(subject, detail, remedy string) preflight.Finding {
	return preflight.Finding{Severity: preflight.Failure, Subject: subject, Detail: detail, Remedy: remedy}
}

// checkDirect looks whether the way around the pooler is open.
func checkDirect(ctx context.Context, cfg *config.Config) []preflight.Finding {
	if cfg.Postgres.DirectDSN == "" {
		return nil
	}
	direct := cfg.Postgres
	direct.DSN = direct.DirectDSN
	pool, err := openPool(ctx, direct)
	if err != nil {
		return []preflight.Finding{failure("postgres.direct_dsn", strings.ReplaceAll(err.Error(), "postgres.dsn", "postgres.direct_dsn"), "")}
	}
	pool.Close()
	return []preflight.Finding{{Subject: "postgres.direct_dsn", Detail: "connected"}}
}

// checkTables looks at each outbox, and returns those that can be used.
func checkTables(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config) (outboxes []*table.Outbox, findings []preflight.Finding) {
	for i := range cfg.Outboxes {
		o, err := resolveOne(ctx, pool, cfg, i)
		var wrong *table.ResolveError
		switch {
		case errors.As(err, &wrong):
			findings = append(findings, wrong.Problems...)
		case err != nil:
			findings = append(findings, failure("table "+cfg.Outboxes[i].Table, err.Error(), ""))
		default:
			outboxes = append(outboxes, o)
			findings = append(findings, o.Check(ctx, pool)...)
		}
	}
	return outboxes, append(findings, sameTables(outboxes)...)
}

func (a *app) checkSink(ctx context.Context, cfg *config.Config, topics []string) []preflight.Finding {
	ctx, cancel := context.WithTimeout(ctx, sinkCheckTimeout)
	defer cancel()
	s, err := openSink(cfg, a.out, slog.New(slog.DiscardHandler))
	if err != nil {
		return []preflight.Finding{failure("sink", err.Error(), "")}
	}
	defer s.Close(ctx) //nolint:errcheck // nothing was published
	return s.Check(ctx, topics)
}

// printFindings prints the findings for people: what is wrong with its remedy on a line of its own, and a sum at the end.
func (a *app) printFindings(findings []preflight.Finding) error {
	var width int
	number := map[preflight.Severity]int64{}
	for _, f := range findings {
		width = max(width, len(f.Subject))
		number[f.Severity]++
	}
	for _, f := range findings {
		fmt.Fprintf(a.out, "%-7s  %-*s  %s\n", f.Severity, width, printable(f.Subject), printable(f.Detail))
		if f.Remedy != "" {
			fmt.Fprintf(a.out, "%-7s  %-*s  -> %s\n", "", width, "", printable(f.Remedy))
		}
	}
	verdict := "the relay can run"
	if number[preflight.Failure] > 0 {
		verdict = "the relay can't run like this"
	}
	_, err := fmt.Fprintf(a.out, "\n%s: %s, %s, %s\n", verdict, count(number[preflight.Failure], "failure", "failures"),
		count(number[preflight.Warning], "warning", "warnings"), count(number[preflight.Note], "note", "notes"))
	return err
}

// sameTables finds tables that are configured under two names.
func sameTables(outboxes []*table.Outbox) []preflight.Finding {
	var findings []preflight.Finding
	first := map[uint32]int32{}
	for _, o := range outboxes {
		i, twice := first[o.OID]
		if !twice {
			first[o.OID] = o.Index
			continue
		}
		findings = append(findings, failure("table "+o.String(),
			fmt.Sprintf("outboxes[%d] and outboxes[%d] are the same table", i, o.Index), "remove one of them"))
	}
	return findings
}
