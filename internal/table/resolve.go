package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// ResolveError says why a configured table can't be used: everything that is wrong with it, at once.
type ResolveError struct {
	Table    string // as configured
	Problems []preflight.Finding
}

// Error names each problem with its remedy, in one line.
func (e *ResolveError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s can't be used as an outbox", e.Table)
	for i, p := range e.Problems {
		b.WriteString([...]string{": ", "; "}[min(i, 1)])
		b.WriteString(p.Detail)
		if p.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", p.Remedy)
		}
	}
	return b.String()
}

// Resolve looks the table up and checks the mapping. A name without a schema is searched for along the connection's
// search_path. The error is a *ResolveError when the table can't be used like this, and any other when the question
// couldn't be asked.
func Resolve(ctx context.Context, q Querier, index int32, spec Spec) (*Outbox, error) {
	r := resolver{q: q, spec: spec, setting: fmt.Sprintf("outboxes[%d]", index), out: &Outbox{Index: index, columns: map[Column]column{}}}
	for _, step := range []func(context.Context) error{r.find, r.readColumns, r.mapColumns, r.mapTopic, r.mapStatuses} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("look at table %s: %w", spec.Table, err)
		}
		if r.out.OID == 0 {
			break // there is nothing to look at
		}
	}
	if len(r.problems) > 0 {
		return nil, &ResolveError{Table: spec.Table, Problems: r.problems}
	}
	return r.out, nil
}

// resolver gathers what Resolve finds out. A step returns an error only when the database couldn't be asked.
type resolver struct {
	q        Querier
	spec     Spec
	setting  string // the configuration's key of this table
	attrs    []attribute
	out      *Outbox
	problems []preflight.Finding
}

// attribute is a column as the catalog has it.
type attribute struct {
	name      string
	notNull   bool
	generated bool
	typ       string // as SQL writes it
	base      uint32
	typtype   string
	kind      kind
}

func (r *resolver) problem(remedy, format string, args ...any) {
	r.problems = append(r.problems, preflight.Finding{
		Severity: preflight.Failure, Subject: "table " + r.spec.Table, Detail: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

// find fills in the table's identity; OID stays 0 when there is no such table.
func (r *resolver) find(ctx context.Context) error {
	schema, name, err := parseName(r.spec.Table)
	if err != nil {
		r.problem("set "+r.setting+`.table to table or schema.table, with "double quotes" around a name that isn't lower case letters, digits and _`, "%v", err)
		return nil
	}
	sql, args := findByPath, []any{name}
	if schema != "" {
		sql, args = findQualified, []any{schema, name}
	}
	o := r.out
	var kind, persistence, identity string
	switch err := r.q.QueryRow(ctx, sql, args...).Scan(&o.OID, &o.Schema, &o.Name, &kind, &persistence, &identity); {
	case errors.Is(err, pgx.ErrNoRows):
		return r.notFound(ctx, schema, name)
	case err != nil:
		return err
	}
	o.relkind, o.relpersistence, o.replicaIdentity = kind[0], persistence[0], identity[0]
	if o.relkind != 'r' && o.relkind != 'p' {
		what := map[byte]string{'v': "a view", 'm': "a materialized view", 'f': "a foreign table"}[o.relkind]
		if what == "" {
			what = "not a table"
		}
		r.problem("set "+r.setting+".table to the table that the application inserts into",
			"%s is %s: it has no WAL of its own, and rows can't be marked in it", o, what)
		o.OID = 0
	}
	return nil
}

func (r *resolver) notFound(ctx context.Context, schema, name string) error {
	remedy := "run cdc-relay init or set " + r.setting + ".table"
	var elsewhere string
	if err := r.q.QueryRow(ctx, findElsewhere, name).Scan(&elsewhere); err != nil {
		return err
	}
	where := ""
	switch {
	case elsewhere != "":
		where = fmt.Sprintf("; there is a table %q in schema %s", name, elsewhere)
	case !strings.Contains(r.spec.Table, `"`) && foldASCII(r.spec.Table) != r.spec.Table:
		where = "; a name with capitals needs double quotes"
	}
	if schema == "" {
		r.problem(remedy, "there is no table %q in the search_path%s", name, where)
		return nil
	}
	r.problem(remedy, "there is no table %q in schema %q%s", name, schema, where)
	return nil
}

func (r *resolver) readColumns(ctx context.Context) error {
	rows, err := r.q.Query(ctx, attributes, r.out.OID)
	if err != nil {
		return err
	}
	r.attrs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a attribute, err error) {
		var category string
		err = row.Scan(&a.name, &a.notNull, &a.generated, &a.typ, &a.base, &a.typtype, &category)
		a.kind = kindOf(a.base, a.typtype, category)
		return a, err
	})
	return err
}

func (r *resolver) attribute(name string) (attribute, bool) {
	i := slices.IndexFunc(r.attrs, func(a attribute) bool { return a.name == name })
	if i < 0 {
		return attribute{}, false
	}
	return r.attrs[i], true
}

// names lists the table's columns for a message.
func (r *resolver) names() string {
	var names []string
	for _, a := range r.attrs {
		names = append(names, a.name)
	}
	return strings.Join(names, ", ")
}
