package replication

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Conn is what setting up the publication needs of a connection or pool.
type Conn interface {
	table.Querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// publication is a publication as the catalog has it.
type publication struct {
	exists  bool
	insert  bool
	more    bool // it publishes updates or deletes too
	viaRoot bool
	tables  []publishedTable // one for each outbox, in their order
}

type publishedTable struct {
	schema, name string // as they are now; empty: the table is gone
	published    bool
	filter       string
	columns      []string // empty: all
}

func readPublication(ctx context.Context, q table.Querier, name string, outboxes []*table.Outbox) (publication, error) {
	p := publication{exists: true}
	err := q.QueryRow(ctx, findPublication, name).Scan(&p.insert, &p.more, &p.viaRoot)
	if errors.Is(err, pgx.ErrNoRows) {
		p.exists, err = false, nil
	}
	if err != nil {
		return p, fmt.Errorf("look at publication %s: %w", name, err)
	}
	rows, err := q.Query(ctx, publicationTables, name, oidArray(outboxes))
	if err != nil {
		return p, fmt.Errorf("look at the tables of publication %s: %w", name, err)
	}
	p.tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t publishedTable, err error) {
		var oid uint32
		err = row.Scan(&oid, &t.schema, &t.name, &t.published, &t.filter, &t.columns)
		return t, err
	})
	if err == nil && len(p.tables) != len(outboxes) {
		err = fmt.Errorf("%d rows for %d tables", len(p.tables), len(outboxes))
	}
	if err != nil {
		return p, fmt.Errorf("look at the tables of publication %s: %w", name, err)
	}
	return p, nil
}

func oidArray(outboxes []*table.Outbox) string {
	oids := make([]string, len(outboxes))
	for i, o := range outboxes {
		oids[i] = fmt.Sprint(o.OID)
	}
	return "{" + strings.Join(oids, ",") + "}"
}

// defect is something about a publication that keeps rows from the stream.
type defect struct {
	detail string
	sql    string // mends it
	// harmless: the relay may run sql by itself, when it may create things at all.
	harmless bool
}

// defects are all that keep the outboxes' rows from the stream.
func (p publication) defects(name string, outboxes []*table.Outbox) []defect {
	ident := pgx.Identifier{name}.Sanitize()
	if !p.exists {
		return []defect{{"there is no publication " + name, createPublication(name, idents(outboxes)), true}}
	}
	var all []defect
	if !p.insert {
		all = append(all, defect{detail: "publication " + name + " doesn't publish inserts",
			sql: "ALTER PUBLICATION " + ident + " SET (publish = 'insert');"})
	}
	root := !p.viaRoot && slices.ContainsFunc(outboxes, (*table.Outbox).Partitioned)
	if root {
		all = append(all, defect{detail: "publication " + name + " sends the rows of a partitioned outbox under the partitions' names",
			sql: "ALTER PUBLICATION " + ident + " SET (publish_via_partition_root = true);"})
	}
	for i, o := range outboxes {
		if root && o.Partitioned() {
			continue // what is published of it can be told only when the root is published
		}
		if d, bad := p.tables[i].defect(name, o); bad {
			// Publishing updates of a table without a replica identity makes the application's own updates fail.
			d.harmless = d.harmless && !p.more
			all = append(all, d)
		}
	}
	return all
}

func (t publishedTable) defect(publication string, o *table.Outbox) (defect, bool) {
	ident := pgx.Identifier{publication}.Sanitize()
	if t.name == "" {
		return defect{detail: "table " + o.String() + " was dropped, or replaced by another: restart the relay when it is there"}, true
	}
	target := pgx.Identifier{t.schema, t.name}.Sanitize()
	if !t.published {
		return defect{detail: fmt.Sprintf("publication %s doesn't contain table %s", publication, o),
			sql: "ALTER PUBLICATION " + ident + " ADD TABLE " + target + ";", harmless: true}, true
	}
	again := "ALTER PUBLICATION " + ident + " DROP TABLE " + target + "; ALTER PUBLICATION " + ident + " ADD TABLE " + target + ";"
	if t.filter != "" && !onlyPending(t.filter, o) {
		return defect{detail: fmt.Sprintf("publication %s has a row filter on table %s that may hide rows: %s", publication, o, t.filter), sql: again}, true
	}
	if len(t.columns) == 0 {
		return defect{}, false
	}
	published := make([]string, len(t.columns))
	for i, c := range t.columns {
		published[i] = pgx.Identifier{c}.Sanitize()
	}
	for _, c := range o.PollColumns() {
		if !slices.Contains(published, c) {
			return defect{detail: fmt.Sprintf("publication %s leaves out column %s of table %s", publication, c, o), sql: again}, true
		}
	}
	return defect{}, false
}

// onlyPending recognises the one row filter that hides nothing of interest, in whatever way the server prints it.
func onlyPending(filter string, o *table.Outbox) bool {
	plain := func(s string) string { return noise.ReplaceAllString(s, "") }
	return plain(filter) == plain(o.Col(table.Status)+" = "+o.StatusLiteral(table.Pending))
}

// noise: casts, parentheses and quotes of names.
var noise = regexp.MustCompile(`::[\w". ]+|[()"]`)

func createPublication(name string, tables []string) string {
	return "CREATE PUBLICATION " + pgx.Identifier{name}.Sanitize() + " FOR TABLE " + strings.Join(tables, ", ") +
		" WITH (publish = 'insert', publish_via_partition_root = true);"
}

func idents(outboxes []*table.Outbox) []string {
	names := make([]string, len(outboxes))
	for i, o := range outboxes {
		names[i] = o.Ident()
	}
	return names
}

// EnsurePublication makes the publication publish the inserts of all outboxes. With cfg.Create it creates it, and adds
// missing tables; whatever else is wrong is left alone, and is an error with the SQL that mends it, since others may use
// the publication too. created says that there was none before: a slot that is older than its publication must be
// recreated. The connection should have a lock_timeout.
func EnsurePublication(ctx context.Context, conn Conn, cfg Config, outboxes []*table.Outbox) (created bool, err error) {
	if len(outboxes) == 0 {
		return false, because("configuration", "", "there is no outbox to publish")
	}
	p, err := readPublication(ctx, conn, cfg.Publication, outboxes)
	if err != nil {
		return false, err
	}
	defects := p.defects(cfg.Publication, outboxes)
	if cfg.Create {
		left := defects[:0]
		for _, d := range defects {
			if !d.harmless {
				left = append(left, d)
				continue
			}
			if _, err := conn.Exec(ctx, d.sql); err != nil && sqlState(err) != codeDuplicateObject {
				return created, &condition{kind: "publication", reason: d.detail + ", and it can't be mended from here",
					remedy: "as the owner of the tables: " + d.sql, err: err}
			}
			created = created || !p.exists
		}
		defects = left
	}
	return created, publicationCondition(defects)
}

func publicationCondition(defects []defect) error {
	if len(defects) == 0 {
		return nil
	}
	var details, sql []string
	for _, d := range defects {
		details = append(details, d.detail)
		if d.sql != "" {
			sql = append(sql, d.sql)
		}
	}
	return because("publication", strings.Join(sql, " "), "%s", strings.Join(details, "; "))
}
