package replication

import "strings"

// quoteLiteral is s as a literal of the replication protocol's grammar, where a quote is doubled and a backslash is
// nothing special.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
