package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// set parses a text into a field and checks the bounds in its tag.
func (l *loader) set(into reflect.Value, f field, text string, s scope) {
	v, err := parseValue(f.typ, text)
	if err != nil {
		l.fail(s.path, s.origin, "must be %v%s", err, not(f, text))
		return
	}
	if err := f.check(v, text); err != nil {
		l.fail(s.path, s.origin, "%v%s", err, not(f, text))
		return
	}
	into.Set(v)
}

// not shows the wrong value, unless it is a secret.
func not(f field, text string) string {
	if f.isSecret() {
		return ""
	}
	return ", not " + strconv.Quote(text)
}

// parseValue reads one value; its error says what was expected.
func parseValue(t reflect.Type, text string) (reflect.Value, error) {
	var (
		v   any
		err error
	)
	switch {
	case t == durationType:
		v, err = ParseDuration(text)
	case t == bytesType:
		v, err = ParseBytes(text)
	case t.Kind() == reflect.Bool:
		v, err = parseBool(text)
	case t.Kind() == reflect.Int:
		if v, err = strconv.Atoi(text); err != nil {
			err = errors.New("a whole number")
		}
	case t.Kind() == reflect.Float64:
		if v, err = parseFloat(text); err != nil {
			err = errors.New("a number")
		}
	case t.Kind() == reflect.Slice:
		v = splitList(text)
	default:
		v = text
	}
	return reflect.ValueOf(v), err
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("true or false")
}

// splitList takes a list with commas apart.
func splitList(text string) []string {
	words := []string{}
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// check holds a value against the field's tags; the error continues the key to a sentence.
func (f field) check(v reflect.Value, text string) error {
	if words := f.tag.Get("oneof"); words != "" {
		return oneOf(text, strings.Fields(words), f.tag.Get("default") == "")
	}
	if least := f.tag.Get("min"); least != "" && compare(f.typ, v, least) < 0 {
		return fmt.Errorf("must be at least %s", least)
	}
	if most := f.tag.Get("max"); most != "" && compare(f.typ, v, most) > 0 {
		return fmt.Errorf("must be at most %s", most)
	}
	return nil
}

// oneOf checks a word; the empty one counts as not set where there is no default.
func oneOf(text string, words []string, optional bool) error {
	if optional && text == "" {
		return nil
	}
	for _, w := range words {
		if w == text {
			return nil
		}
	}
	if n := nearest(text, words); n != "" {
		return fmt.Errorf("must be one of %s (did you mean %s?)", strings.Join(words, ", "), n)
	}
	return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
}

// compare orders a value and a bound of the same type. Every bounded value is exact as a float64: sizes end at 2^53, and
// a duration that is off by nanoseconds is on the same side of its bound.
func compare(t reflect.Type, v reflect.Value, bound string) int {
	b, err := parseValue(t, bound)
	if err != nil {
		panic("bad bound in a tag: " + bound) // a test reads all of them
	}
	float := reflect.TypeFor[float64]()
	x, y := v.Convert(float).Float(), b.Convert(float).Float()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// defaults fills a section with the defaults of its tags.
func (l *loader) defaults(into reflect.Value) {
	for _, f := range fieldsOf(into.Type()) {
		text, ok := f.tag.Lookup("default")
		switch {
		case f.isSection():
			l.defaults(into.Field(f.index))
		case ok && f.isTables():
			l.tables(into.Field(f.index), l.document([]byte(text), origin{}), scope{path: f.name})
		case ok:
			l.set(into.Field(f.index), f, text, scope{path: f.name})
		case f.typ.Kind() == reflect.Map:
			into.Field(f.index).Set(reflect.MakeMap(f.typ))
		}
	}
}
