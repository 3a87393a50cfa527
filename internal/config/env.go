package config

import (
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// envPrefix begins the name of every variable of the relay.
const envPrefix = "CDC_RELAY_"

// envName is the variable of a key.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// environ takes the form of os.Environ apart. As for libc, the first of several settings of one name counts.
func environ(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if _, seen := env[name]; ok && !seen {
			env[name] = value
		}
	}
	return env
}

// environment sets keys from their variables, sections before what is in them. An empty variable counts as not set,
// for that is what a compose file makes of one. Values are taken as they are: whoever set the variable had a shell (or
// an orchestrator) to expand what is in it, and a password may hold a $.
func (l *loader) environment(root reflect.Value) {
	known := []string{envPrefix + "CONFIG"}
	var visit func(into reflect.Value, prefix string)
	visit = func(into reflect.Value, prefix string) {
		for _, f := range fieldsOf(into.Type()) {
			path := join(prefix, f.name)
			name := envName(path)
			known = append(known, name)
			if text := l.env[name]; text != "" {
				l.variable(into.Field(f.index), f, text, scope{path: path, origin: origin{env: name}})
			}
			if f.isSection() {
				visit(into.Field(f.index), path)
			}
		}
	}
	visit(root, "")
	l.unknownVariables(known)
}

// variable decodes a variable: YAML (which JSON is too) for sections, tables, maps and lists in brackets.
func (l *loader) variable(into reflect.Value, f field, text string, s scope) {
	kind := f.typ.Kind()
	if kind == reflect.Struct || kind == reflect.Map || f.isTables() ||
		kind == reflect.Slice && strings.HasPrefix(strings.TrimSpace(text), "[") {
		if node := l.document([]byte(text), s.origin); node != nil {
			l.value(into, f, node, s)
		}
		return
	}
	l.origins[s.path] = s.origin
	l.set(into, f, text, s)
}

// foreign are variables with our prefix that aren't ours: those of our own tests, and those that Kubernetes sets in
// every pod for a Service whose name begins with cdc-relay.
var foreign = regexp.MustCompile(`^CDC_RELAY_(TEST_.*|(.*_)?SERVICE_(HOST|PORT(_.*)?)|(.*_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknownVariables notes what has our prefix and isn't a key.
func (l *loader) unknownVariables(known []string) {
	var names []string
	for name := range l.env {
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) && !foreign.MatchString(name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		hint := ""
		if n := nearest(name[len(envPrefix):], suffixes(known)); n != "" {
			hint = " (did you mean " + envPrefix + n + "?)"
		}
		l.fail("", origin{env: name}, "is not a known setting%s", hint)
	}
}

// suffixes are the names without the prefix, which would make any two names look alike.
func suffixes(names []string) []string {
	short := make([]string, len(names))
	for i, n := range names {
		short[i] = n[len(envPrefix):]
	}
	return short
}
