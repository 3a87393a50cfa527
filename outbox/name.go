package outbox

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tableName is table or schema.table; a part in double quotes is taken as it is.
var tableName = regexp.MustCompile(`^(?:("(?:[^"\x00]|"")+"|[\pL_][\pL\pN_$]*)\.)?("(?:[^"\x00]|"")+"|[\pL_][\pL\pN_$]*)$`)

// ident reads a table's name as SQL does and quotes it.
func ident(name string) (string, error) {
	parts := tableName.FindStringSubmatch(name)
	if parts == nil {
		return "", fmt.Errorf(`table name %q: it must be table or schema.table, with double quotes around a part that has other characters than letters, digits and _`, name)
	}
	var id pgx.Identifier
	for _, part := range parts[1:] {
		switch {
		case part == "":
		case part[0] == '"':
			id = append(id, strings.ReplaceAll(part[1:len(part)-1], `""`, `"`))
		default:
			id = append(id, strings.Map(foldASCII, part))
		}
	}
	return id.Sanitize(), nil
}

func foldASCII(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + ('a' - 'A')
	}
	return r
}
