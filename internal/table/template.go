package table

import (
	"errors"
	"fmt"
	"strings"
)

// template is a topic template: text with {{column}} in it.
type template []part

// part is a stretch of text, or a column when its name isn't empty.
type part struct {
	text string
	name string // as written
	col  column // filled in by Resolve
}

// parseTemplate reads a template. There is nothing but {{name}}: no escapes, no functions.
func parseTemplate(s string) (template, error) {
	if s == "" {
		s = "{{topic}}"
	}
	var t template
	for rest := s; rest != ""; {
		open := strings.Index(rest, "{{")
		if open < 0 {
			open = len(rest)
		}
		if text := rest[:open]; text != "" {
			if strings.Contains(text, "}}") {
				return nil, errors.New("}} without a {{ before it")
			}
			t = append(t, part{text: text})
		}
		if open == len(rest) {
			break
		}
		end := strings.Index(rest[open:], "}}")
		if end < 0 {
			return nil, fmt.Errorf("%q isn't closed with }}", rest[open:])
		}
		name := strings.TrimSpace(rest[open+2 : open+end])
		if name == "" {
			return nil, errors.New("{{}} names no column")
		}
		if strings.Contains(name, "{{") {
			return nil, fmt.Errorf("{{ inside of %q", rest[open:open+end+2])
		}
		t = append(t, part{name: name})
		rest = rest[open+end+2:]
	}
	return t, nil
}
