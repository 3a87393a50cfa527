package table

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (r *resolver) mapColumns(context.Context) error {
	for _, c := range slices.Sorted(maps.Keys(r.spec.Columns)) {
		if !known(c) {
			r.problem("remove "+r.setting+".columns."+string(c), "%q in columns is no column of the relay", c)
		}
	}
	for _, role := range roles {
		r.mapColumn(role)
	}
	if _, ok := r.out.columns[CreatedAt]; !ok && r.out.idKind == kindUUID {
		r.problem("set "+r.setting+".columns.created_at to a timestamptz column with DEFAULT now()",
			"a uuid id needs a created_at column: rows are polled in the order of their age")
	}
	r.checkShared()
	return nil
}

// mapColumn fills in one column, if the table has it.
func (r *resolver) mapColumn(role role) {
	key := r.setting + ".columns." + string(role.column)
	name, mapped := r.spec.Columns[role.column]
	if !mapped {
		name = string(role.column)
	}
	a, ok := r.attribute(name)
	switch {
	case name == "" && role.required && role.column != Key:
		r.problem("set "+key+" to the name of a column", "the relay can't do without a column for %s", role.column)
	case name == "":
	case !ok && role.column == Status:
		r.problem(fmt.Sprintf("set %s to the column's name, or run: ALTER TABLE %s ADD COLUMN %s text NOT NULL DEFAULT 'PUBLISHED'; ALTER TABLE %[2]s ALTER COLUMN %[3]s SET DEFAULT 'PENDING';",
			key, r.out.Ident(), quote(name)), "there is no column %q for the row's status; the table has %s", name, r.names())
	case !ok && role.column == Key && !mapped:
		r.problem("set "+key+` to the column's name, or to "" when events have no key`, "there is no column %q; the table has %s", name, r.names())
	case !ok && (role.required || mapped):
		r.problem("set "+key+" to the column's name", "there is no column %q; the table has %s", name, r.names())
	case !ok:
	case !slices.Contains(role.kinds, a.kind):
		r.problem("set "+key+" to another column"+orNone(role), "column %q is %s, but %s must be %s", name, a.typ, role.column, list(role.kinds))
	case role.column == ID && !a.notNull:
		r.problem(fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;", r.out.Ident(), quote(name)), "column %q can be NULL: such a row can't be marked", name)
	default:
		r.out.columns[role.column] = column{name: name, kind: a.kind, generated: a.generated}
		if role.column == ID {
			r.out.idKind = a.kind
		}
	}
}

// orNone says how to do without an optional column.
func orNone(role role) string {
	if role.required && role.column != Key {
		return ""
	}
	return `, or to "" to do without`
}

func list(kinds []kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// checkShared refuses that a column which the relay writes is also used for something else.
func (r *resolver) checkShared() {
	for i, a := range roles {
		for _, b := range roles[i+1:] {
			x, okA := r.out.columns[a.column]
			y, okB := r.out.columns[b.column]
			if okA && okB && x.name == y.name && (a.written || b.written) {
				r.problem(fmt.Sprintf("set %s.columns.%s or .%s to another column", r.setting, a.column, b.column),
					"column %q is mapped to both %s and %s", x.name, a.column, b.column)
			}
		}
	}
}

// mapTopic parses the template and finds its columns: by the relay's name first, then by the table's.
func (r *resolver) mapTopic(context.Context) error {
	key := r.setting + ".topic"
	t, err := parseTemplate(r.spec.Topic)
	if err != nil {
		r.problem("set "+key+` to text with {{column}} in it, such as "outbox.{{topic}}"`, "topic template %q: %v", r.spec.Topic, err)
		return nil
	}
	for i := range t {
		if t[i].name == "" {
			continue
		}
		if col, ok := r.out.columns[Column(t[i].name)]; ok && slices.Contains(wordKinds, col.kind) {
			t[i].col = col
			continue
		}
		a, ok := r.attribute(t[i].name)
		switch {
		case !ok && t[i].name == string(Topic):
			r.problem(fmt.Sprintf("set %s.columns.topic to the column's name, or %s to a template over the columns that make the topic", r.setting, key),
				"there is no column %q; the table has %s", t[i].name, r.names())
		case !ok:
			r.problem("set "+key+" to a template over the table's columns", "topic template %q names %q, but the table has only %s", r.spec.Topic, t[i].name, r.names())
		case !slices.Contains(wordKinds, a.kind):
			r.problem("set "+key+" to a template over other columns", "topic template: column %q is %s, but must be %s", a.name, a.typ, list(wordKinds))
		default:
			t[i].col = column{name: a.name, kind: a.kind, generated: a.generated}
		}
	}
	r.out.template = t
	return nil
}

func (r *resolver) mapStatuses(ctx context.Context) error {
	for _, word := range slices.Sorted(maps.Keys(r.spec.Statuses)) {
		if word != Pending && word != Published && word != Dead {
			r.problem(fmt.Sprintf("use %s, %s and %s in %s.statuses", Pending, Published, Dead, r.setting), "%q is no state of the relay", word)
		}
	}
	for i, state := range []string{Pending, Published, Dead} {
		word, mapped := r.spec.Statuses[state]
		if !mapped {
			word = state
		}
		if word == "" || slices.Contains(r.out.statuses[:i], word) {
			r.problem(fmt.Sprintf("set %s.statuses.%s", r.setting, state), "the word %q for %s is empty or used twice", word, state)
		}
		r.out.statuses[i] = word
	}
	return r.checkEnum(ctx)
}

// checkEnum looks whether an enum of states has the words.
func (r *resolver) checkEnum(ctx context.Context) error {
	a, ok := r.attribute(r.out.columns[Status].name)
	if !ok || a.typtype != "e" {
		return nil
	}
	var labels []string
	if err := r.q.QueryRow(ctx, enumLabels, a.base).Scan(&labels); err != nil {
		return err
	}
	for i, state := range []string{Pending, Published, Dead} {
		if word := r.out.statuses[i]; !slices.Contains(labels, word) {
			r.problem(fmt.Sprintf("set %s.statuses.%s to one of the labels, or run: ALTER TYPE %s ADD VALUE %s;", r.setting, state, a.typ, literal(word)),
				"type %s of column %q has no label %q for %s, only %s", a.typ, a.name, word, state, strings.Join(labels, ", "))
		}
	}
	return nil
}
