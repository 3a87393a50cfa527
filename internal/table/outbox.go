package table

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Outbox is an outbox table as it was found in the database. It is immutable and safe for concurrent use.
type Outbox struct {
	// Index is the table's position in the configured list; it is in every RowID of the table.
	Index int32
	// OID of the table (of the root, when it is partitioned): the relation id of the stream.
	OID uint32
	// Schema and Name are as in the catalog, not quoted.
	Schema, Name string

	relkind         byte
	relpersistence  byte
	replicaIdentity byte
	columns         map[Column]column
	template        template
	statuses        [3]string // of Pending, Published, Dead
	idKind          kind
}

// column is a mapped column that exists.
type column struct {
	name      string // as in the catalog
	kind      kind
	generated bool
}

// String is schema.table without quotes, for logs and messages.
func (o *Outbox) String() string { return o.Schema + "." + o.Name }

// Ident is the quoted schema.table for SQL.
func (o *Outbox) Ident() string { return pgx.Identifier{o.Schema, o.Name}.Sanitize() }

// Has says whether the table has the column.
func (o *Outbox) Has(c Column) bool {
	_, ok := o.columns[c]
	return ok
}

// Col is the quoted actual name of the column for SQL, or "" when the table has none.
func (o *Outbox) Col(c Column) string {
	col, ok := o.columns[c]
	if !ok {
		return ""
	}
	return quote(col.name)
}

// OrderByCreatedAt says that the poll order is (created_at, id) and not id: the id is a uuid, which says nothing about
// time. Then the table has a created_at.
func (o *Outbox) OrderByCreatedAt() bool { return o.idKind == kindUUID }

// MessageUUID is the quoted name of the message id's column where it tells rows apart that have the same id one after the
// other: a standby that had not received a row when it was promoted gives its number again. "" where nothing does, or
// where the id itself is unique for ever.
func (o *Outbox) MessageUUID() string {
	if o.idKind == kindUUID || o.columns[MessageID].kind != kindUUID {
		return ""
	}
	return o.Col(MessageID)
}

// FreedSQL is the condition that a DEAD row was freed: its key goes on, though ordering.on_dead is block. Such a row waits
// for no attempt any more, which next_attempt_at says; without that column no row can be freed. alias is the table's.
func (o *Outbox) FreedSQL(alias string) string {
	if !o.Has(NextAttemptAt) {
		return "false"
	}
	return fmt.Sprintf("coalesce(%s.%s = 'infinity', false)", alias, o.Col(NextAttemptAt))
}

// TopicColumn is the quoted name of the column that is the topic, as it is; "" where a template makes the topic.
func (o *Outbox) TopicColumn() string {
	if len(o.template) != 1 || o.template[0].name == "" || o.template[0].col.kind != kindText {
		return ""
	}
	return quote(o.template[0].col.name)
}

// Partitioned says whether the table is the root of a partitioned one.
func (o *Outbox) Partitioned() bool { return o.relkind == 'p' }

// ReplicaIdentity is "default", "nothing", "full" or "index".
func (o *Outbox) ReplicaIdentity() string {
	switch o.replicaIdentity {
	case 'n':
		return "nothing"
	case 'f':
		return "full"
	case 'i':
		return "index"
	default:
		return "default"
	}
}

// StatusWord is the table's word for a state (Pending, Published, Dead), as a parameter takes it.
func (o *Outbox) StatusWord(state string) string {
	switch state {
	case Pending:
		return o.statuses[0]
	case Published:
		return o.statuses[1]
	case Dead:
		return o.statuses[2]
	default:
		return state
	}
}

// StatusLiteral is StatusWord as an SQL literal. Where the pending rows' partial index must serve, the statement has to
// have the word in it: a generic plan doesn't use the index when it is a parameter.
func (o *Outbox) StatusLiteral(state string) string { return literal(o.StatusWord(state)) }

// PollColumns are the quoted names of the columns that a Decoder wants to see, each once.
func (o *Outbox) PollColumns() []string {
	names := o.read()
	for i := range names {
		names[i] = quote(names[i])
	}
	return names
}

// read is the names of all columns that make the event.
func (o *Outbox) read() []string {
	var names []string
	add := func(c column) {
		if c.name != "" && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	for _, r := range roles {
		if r.column != Topic { // it is read when the template names it
			add(o.columns[r.column])
		}
	}
	for _, p := range o.template {
		add(p.col)
	}
	return names
}

// Missing says, one sentence for each optional column that the table doesn't have, what is lost without it.
func (o *Outbox) Missing() []string {
	var out []string
	for _, r := range roles {
		if r.lost != "" && !o.Has(r.column) {
			out = append(out, fmt.Sprintf("without %s %s", r.column, r.lost))
		}
	}
	return out
}
