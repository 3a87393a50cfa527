package table

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Check looks at what the relay needs of the table beside its columns: privileges, persistence, row security, indexes,
// settings. It says what it found in order, too.
func (o *Outbox) Check(ctx context.Context, q Querier) []preflight.Finding {
	c := checker{o: o}
	c.add(preflight.OK, "", "found, every mapped column is there and has a type that fits", "")
	c.checkPersistence()
	if err := c.checkAccess(ctx, q); err != nil {
		c.add(preflight.Failure, "", fmt.Sprintf("can't read its privileges: %v", err), "")
	}
	if err := c.checkIndexes(ctx, q); err != nil {
		c.add(preflight.Failure, "", fmt.Sprintf("can't read its indexes: %v", err), "")
	}
	c.checkColumns()
	return c.findings
}

type checker struct {
	o        *Outbox
	findings []preflight.Finding
}

// add appends a finding about the table, or about what of it is named.
func (c *checker) add(s preflight.Severity, what, detail, remedy string) {
	subject := "table " + c.o.String()
	if what != "" {
		subject += ", " + what
	}
	c.findings = append(c.findings, preflight.Finding{Severity: s, Subject: subject, Detail: detail, Remedy: remedy})
}

func (c *checker) checkPersistence() {
	switch c.o.relpersistence {
	case 'u':
		c.add(preflight.Failure, "persistence", "it is unlogged: its rows are not in the WAL, so they can't be streamed, and a crash of the server empties it",
			fmt.Sprintf("ALTER TABLE %s SET LOGGED;", c.o.Ident()))
	case 't':
		c.add(preflight.Failure, "persistence", "it is temporary: no other session sees its rows", "run cdc-relay init to make a permanent one")
	}
}

// checkAccess asks about privileges, row security and storage parameters.
func (c *checker) checkAccess(ctx context.Context, q Querier) error {
	o := c.o
	var user string
	var usage, sel, upd, del, rls bool
	var options []string
	err := q.QueryRow(ctx, privileges, o.OID, o.Schema, o.read(), o.writes()).Scan(&user, &usage, &sel, &upd, &del, &rls, &options)
	if err != nil {
		return err
	}
	if !usage {
		c.add(preflight.Failure, "privileges", fmt.Sprintf("role %s has no USAGE on schema %s", user, o.Schema),
			fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", quote(o.Schema), quote(user)))
	}
	var lacking []string
	for _, p := range []struct {
		name string
		has  bool
	}{{"SELECT", sel}, {"UPDATE", upd}, {"DELETE", del}} {
		if !p.has {
			lacking = append(lacking, p.name)
		}
	}
	if len(lacking) > 0 {
		privs := strings.Join(lacking, ", ")
		c.add(preflight.Failure, "privileges", fmt.Sprintf("role %s lacks %s: rows are polled (SELECT), marked (UPDATE) and purged (DELETE)", user, privs),
			fmt.Sprintf("GRANT %s ON %s TO %s;", privs, o.Ident(), quote(user)))
	} else if usage {
		c.add(preflight.OK, "privileges", fmt.Sprintf("role %s may SELECT, UPDATE and DELETE", user), "")
	}
	if rls {
		c.add(preflight.Warning, "row security", fmt.Sprintf("row-level security is active for role %s: the poll doesn't find and marks don't change what its policies hide", user),
			fmt.Sprintf("CREATE POLICY cdc_relay ON %s TO %s USING (true);", o.Ident(), quote(user)))
	}
	c.checkAutovacuum(options)
	return nil
}

// writes is the names of the columns that the relay changes.
func (o *Outbox) writes() []string {
	var names []string
	for _, r := range roles {
		if col, ok := o.columns[r.column]; ok && r.written {
			names = append(names, col.name)
		}
	}
	return names
}

func (c *checker) checkAutovacuum(options []string) {
	if c.o.Partitioned() { // a root has no storage
		return
	}
	set := func(option string) bool { return strings.HasPrefix(option, "autovacuum_vacuum_scale_factor=") }
	if slices.ContainsFunc(options, set) {
		return
	}
	c.add(preflight.Note, "autovacuum", "it is vacuumed like any other table, by a share of its size: a queue that was large once then keeps its dead rows for long",
		fmt.Sprintf("ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);", c.o.Ident()))
}

// checkColumns tells of what is missing, and of what the stream doesn't carry.
func (c *checker) checkColumns() {
	for _, r := range roles {
		col, ok := c.o.columns[r.column]
		switch {
		case !ok && r.lost != "":
			c.add(preflight.Note, "column "+string(r.column), "there is none: "+r.lost,
				fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s;", c.o.Ident(), r.column, r.add))
		case ok && col.generated && !r.written:
			c.add(preflight.Warning, "column "+col.name, "it is generated, and the stream doesn't carry generated columns: events come by the poll only",
				"map "+string(r.column)+" to a column that the application writes")
		}
	}
}

// index is one index of the table; first and second are the names of its key columns.
type index struct {
	name          string
	valid, unique bool
	keys          int16
	first, second string
	predicate     string
}

func (c *checker) checkIndexes(ctx context.Context, q Querier) error {
	rows, err := q.Query(ctx, indexes, c.o.OID)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i index, err error) {
		err = row.Scan(&i.name, &i.valid, &i.unique, &i.keys, &i.first, &i.second, &i.predicate)
		return i, err
	})
	if err != nil {
		return err
	}
	c.checkPartial(all, Pending, preflight.Warning, "every poll then reads the whole table, or an index of all rows")
	c.checkPartial(all, Dead, preflight.Note, "counting and listing DEAD rows then reads the whole table")
	id := c.o.columns[ID].name
	if !slices.ContainsFunc(all, func(i index) bool {
		return i.valid && i.unique && i.predicate == "" && i.first == id && (i.keys == 1 || c.o.Partitioned())
	}) {
		c.add(preflight.Warning, "column "+id, "no unique index says that an id is there only once: rows that share one are marked together",
			fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s);", c.o.Ident(), quote(id)))
	}
	return nil
}

// checkPartial looks for the index of the rows of a state, in poll order.
func (c *checker) checkPartial(all []index, state string, severity preflight.Severity, cost string) {
	o := c.o
	what := "index of " + o.StatusWord(state) + " rows"
	keys := []string{o.columns[ID].name}
	if o.OrderByCreatedAt() {
		keys = []string{o.columns[CreatedAt].name, o.columns[ID].name}
	}
	// pg_get_expr never writes E''.
	predicate := plain(quote(o.columns[Status].name) + " = '" + strings.ReplaceAll(o.StatusWord(state), "'", "''") + "'")
	create := o.createIndex(keys, state)
	for _, i := range all {
		if i.first != keys[0] || len(keys) > 1 && i.second != keys[1] || plain(i.predicate) != predicate {
			continue
		}
		if i.valid {
			c.add(preflight.OK, what, i.name, "")
			return
		}
		create = fmt.Sprintf("DROP INDEX %s; ", i.name) + create
		cost = i.name + " is not valid, as a CREATE INDEX CONCURRENTLY that failed leaves it; " + cost
	}
	c.add(severity, what, "there is none that could be used: "+cost, create)
}

// createIndex is the statement for the index of the rows of a state. A partitioned table's can't be made concurrently.
func (o *Outbox) createIndex(keys []string, state string) string {
	concurrently := " CONCURRENTLY"
	if o.Partitioned() {
		concurrently = ""
	}
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = quote(k)
	}
	return fmt.Sprintf("CREATE INDEX%s %s ON %s (%s) WHERE %s = %s;", concurrently, quote(indexName(o.Name, strings.ToLower(state))),
		o.Ident(), strings.Join(quoted, ", "), o.Col(Status), o.StatusLiteral(state))
}

var (
	casts = regexp.MustCompile(`::("[^"]*"|\w+)(\.("[^"]*"|\w+))?( varying)?(\(\d+\))?`)
	trim  = strings.NewReplacer("(", "", ")", "", `"`, "", " ", "")
)

// plain takes from an expression what pg_get_expr adds to it: casts, parentheses, quotes and spaces. It is good enough
// to tell whether a predicate is status = 'PENDING'; a mistake costs a needless warning.
func plain(expr string) string { return trim.Replace(casts.ReplaceAllString(expr, "")) }
