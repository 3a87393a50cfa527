package table

import "strings"

// kind is how the bytes of a column's type are read.
type kind uint8

const (
	kindOther kind = iota
	kindText       // what is the same in both formats: text, varchar, char(n), name, citext, every enum
	kindJSON
	kindJSONB
	kindBytea
	kindInt2
	kindInt4
	kindInt8
	kindUUID
	kindTimestamptz
	kindTimestamp
)

// literal makes an SQL string literal; a backslash makes it an E'' one, so that standard_conforming_strings doesn't
// matter.
func literal(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''")
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return "'" + s + "'"
}
