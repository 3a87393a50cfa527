package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// section decodes a mapping into a struct.
func (l *loader) section(into reflect.Value, node *yaml.Node, s scope) {
	pairs, ok := l.pairs(node, s)
	if !ok {
		return
	}
	fields := fieldsOf(into.Type())
next:
	for _, p := range pairs {
		path := join(s.path, p.key.Value)
		for _, f := range fields {
			if f.name == p.key.Value {
				l.value(into.Field(f.index), f, p.value, s.at(path, p.key))
				continue next
			}
		}
		l.unknown(path, fields, s.at(path, p.key))
	}
}

// unknown notes a key that isn't in the schema, with the one that was probably meant.
func (l *loader) unknown(path string, siblings []field, s scope) {
	dot := strings.LastIndexByte(path, '.') + 1
	names := make([]string, len(siblings))
	for i, f := range siblings {
		names[i] = f.name
	}
	hint := ""
	if n := nearest(path[dot:], names); n != "" {
		hint = path[:dot] + n
	} else if !strings.Contains(path, "[") {
		hint = elsewhere(path[dot:])
	}
	if hint != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", hint)
	}
	l.fail(path, s.origin, "is not a known key%s", hint)
}

// elsewhere finds the path of a key that stands in the wrong section.
func elsewhere(name string) string {
	found := ""
	walkSchema(reflect.TypeFor[Config](), "", func(path string, f field) {
		if found == "" && f.name == name && !strings.Contains(path, "[") {
			found = path
		}
	})
	return found
}

// value decodes a node into one field and remembers where that was.
func (l *loader) value(into reflect.Value, f field, node *yaml.Node, s scope) {
	node, ok := l.resolve(node, s)
	if !ok || isNull(node) {
		return // a key without a value keeps its default
	}
	l.origins[s.path] = s.origin
	switch {
	case f.isSection():
		l.section(into, node, s)
	case f.isTables():
		l.tables(into, node, s)
	case f.typ.Kind() == reflect.Map:
		l.words(into, node, s)
	case f.typ.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		l.list(into, node, s)
	default:
		if text, ok := l.text(node, s); ok {
			l.set(into, f, text, s)
		}
	}
}

// tables decodes a sequence of mappings. What was there before is replaced.
func (l *loader) tables(into reflect.Value, node *yaml.Node, s scope) {
	if node.Kind != yaml.SequenceNode {
		l.fail(s.path, s.origin, "must be a list, such as [{table: public.outbox}]")
		return
	}
	items := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		inner := s.at(s.path+"["+strconv.Itoa(i)+"]", item)
		l.defaults(items.Index(i))
		l.origins[inner.path] = inner.origin
		if node, ok := l.resolve(item, inner); ok {
			l.section(items.Index(i), node, inner)
		}
	}
	into.Set(items)
}

// list decodes a sequence of words.
func (l *loader) list(into reflect.Value, node *yaml.Node, s scope) {
	var words []string // nil when it is empty, as when the key was left out
	for i, item := range node.Content {
		inner := s.at(s.path+"["+strconv.Itoa(i)+"]", item)
		if node, ok := l.resolve(item, inner); ok {
			if text, ok := l.text(node, inner); ok {
				words = append(words, text)
			}
		}
	}
	into.Set(reflect.ValueOf(words))
}

// words decodes a mapping of words to words.
func (l *loader) words(into reflect.Value, node *yaml.Node, s scope) {
	pairs, ok := l.pairs(node, s)
	if !ok {
		return
	}
	words := map[string]string{}
	for _, p := range pairs {
		inner := s.at(join(s.path, p.key.Value), p.key)
		node, ok := l.resolve(p.value, inner)
		if !ok {
			continue
		}
		text, ok := "", true
		if !isNull(node) {
			text, ok = l.text(node, inner)
		}
		if ok {
			words[p.key.Value] = text
			l.origins[inner.path] = inner.origin
		}
	}
	into.Set(reflect.ValueOf(words))
}
