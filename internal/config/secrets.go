package config

import (
	"os"
	"reflect"
	"strings"
)

// secretFiles reads the file of each secret whose key with _file is set.
func (l *loader) secretFiles(into reflect.Value, prefix string) {
	for _, f := range fieldsOf(into.Type()) {
		path := join(prefix, f.name)
		if f.isSection() {
			l.secretFiles(into.Field(f.index), path)
			continue
		}
		if !f.isSecret() {
			continue
		}
		for _, file := range fieldsOf(into.Type()) {
			if name := into.Field(file.index).String(); file.name == f.name+"_file" && name != "" {
				l.secretFile(into.Field(f.index), path, name)
			}
		}
	}
}

// secretFile sets one secret from a file. Both ways at once is an error: no guess could be right.
func (l *loader) secretFile(into reflect.Value, path, name string) {
	at := l.origins[path+"_file"]
	if _, set := l.origins[path]; set && into.String() != "" {
		l.fail(path, at, "and %s_file are both set: keep one of them", path)
		return
	}
	if text, ok := l.readSecret(path+"_file", name); ok {
		into.SetString(text)
		l.origins[path] = at
	}
}

// readSecret is the file's text without line ends and blanks at its end.
func (l *loader) readSecret(key, name string) (string, bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		l.fail(key, l.origins[key], "names %s, which %s", name, unreadable(err))
		return "", false
	}
	secret := strings.TrimRight(string(text), " \t\r\n")
	if secret == "" {
		l.fail(key, l.origins[key], "names %s, which is empty", name)
		return "", false
	}
	return secret, true
}
