package config

import (
	"reflect"
	"strings"
	"time"
)

// field is one key of a section: a field of a struct with a yaml tag.
type field struct {
	name  string // the key, without its path
	index int    // in the struct
	typ   reflect.Type
	tag   reflect.StructTag
}

// fieldsOf lists the keys of a section in the order of the struct.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			fields = append(fields, field{name: name, index: i, typ: f.Type, tag: f.Tag})
		}
	}
	return fields
}

// isSection says whether the field is a mapping with keys of its own.
func (f field) isSection() bool { return f.typ.Kind() == reflect.Struct }

// isTables says whether the field is the list of outboxes.
func (f field) isTables() bool {
	return f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Struct
}

// isSecret says whether a value of the field must not be shown.
func (f field) isSecret() bool { return f.tag.Get("secret") != "" }

// Key describes a setting, for the documentation.
type Key struct {
	Path    string // outboxes[].table for a key of a list's items
	Env     string // empty for a key of a list's items: the list is set as a whole
	Default string // as in a file; empty: none
	OneOf   string // the allowed words, with spaces between
}

// Keys lists every key that holds a value, in the order of the schema.
func Keys() []Key {
	var keys []Key
	walkSchema(reflect.TypeFor[Config](), "", func(path string, f field) {
		if f.isSection() || f.isTables() {
			return
		}
		k := Key{Path: path, Default: f.tag.Get("default"), OneOf: f.tag.Get("oneof")}
		if !strings.Contains(path, "[]") {
			k.Env = envName(path)
		}
		keys = append(keys, k)
	})
	return keys
}

// walkSchema visits the keys below t, sections and lists before what is in them.
func walkSchema(t reflect.Type, prefix string, visit func(path string, f field)) {
	for _, f := range fieldsOf(t) {
		path := join(prefix, f.name)
		visit(path, f)
		switch {
		case f.isSection():
			walkSchema(f.typ, path, visit)
		case f.isTables():
			walkSchema(f.typ.Elem(), path+"[]", visit)
		}
	}
}

// join appends a key to a path.
func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
)
