package config

import (
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expanded replaces ${NAME} by the environment variable and $$ by a single $; any other $ stays.
func (l *loader) expanded(text string, s scope) (string, bool) {
	var out strings.Builder
	good := true
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), good
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			name, rest, closed := strings.Cut(after[1:], "}")
			value, set := l.env[name]
			switch {
			case !closed || !variable.MatchString(name):
				l.fail(s.path, s.origin, "holds a ${ that begins no ${NAME} (write $${ for the characters themselves)")
				return "", false
			case !set:
				l.fail(s.path, s.origin, "needs the environment variable %s, which is not set", name)
				good = false
			}
			out.WriteString(value)
			text = rest
		default:
			out.WriteByte('$')
			text = after
		}
	}
}
