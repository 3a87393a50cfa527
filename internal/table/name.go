package table

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxName is the length in bytes beyond which Postgres cuts a name off: NAMEDATALEN - 1.
const maxName = 63

// parseName reads table or schema.table as SQL does: a part in double quotes is taken as it is, with "" for a quote in
// it; any other is folded to lower case (ASCII only, as Postgres does in a UTF-8 database). schema is "" when there is
// none.
func parseName(s string) (schema, name string, err error) {
	var parts []string
	rest := s
	for {
		part, after, err := namePart(rest)
		if err != nil {
			return "", "", fmt.Errorf("table name %q: %w", s, err)
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		rest = after[1:] // the dot
	}
	switch len(parts) {
	case 1:
		return "", parts[0], nil
	case 2:
		return parts[0], parts[1], nil
	default:
		return "", "", fmt.Errorf("table name %q: it has %d parts, not table or schema.table", s, len(parts))
	}
}

// namePart splits the first part off; rest is empty or begins with a dot.
func namePart(s string) (part, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		part, rest, err = quotedPart(s[1:])
	} else {
		end := strings.IndexByte(s, '.')
		if end < 0 {
			end = len(s)
		}
		part, rest = foldASCII(s[:end]), s[end:]
		if strings.ContainsAny(part, "\" \t\r\n'();,") {
			err = fmt.Errorf("%q needs double quotes", part)
		}
	}
	switch {
	case err != nil:
		return "", "", err
	case part == "":
		return "", "", errors.New("a part of it is empty")
	case strings.ContainsRune(part, 0):
		return "", "", errors.New("it has a NUL")
	case len(part) > maxName:
		return "", "", fmt.Errorf("%q is longer than the %d bytes that Postgres keeps", part, maxName)
	case rest != "" && rest[0] != '.':
		return "", "", fmt.Errorf("a dot is missing before %q", rest)
	}
	return part, rest, nil
}

func quotedPart(s string) (part, rest string, err error) {
	var b strings.Builder
	for {
		end := strings.IndexByte(s, '"')
		if end < 0 {
			return "", "", errors.New("a double quote isn't closed")
		}
		b.WriteString(s[:end])
		if !strings.HasPrefix(s[end+1:], `"`) {
			return b.String(), s[end+1:], nil
		}
		b.WriteByte('"')
		s = s[end+2:]
	}
}

func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// quote makes an identifier of one name.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal makes an SQL string literal; a backslash makes it an E” one, so that standard_conforming_strings doesn't
// matter.
func literal(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''")
	if strings.Contains(s, `\`) {
		return `E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return "'" + s + "'"
}
