package table

import "github.com/jackc/pgx/v5"

// Ident is the quoted schema.table for a name in the form of Spec.Table, without a look at the database: in "public"
// when there is no schema, as for DDL.
func Ident(name string) (string, error) {
	schema, name, err := parseName(name)
	if err != nil {
		return "", err
	}
	if schema == "" {
		schema = "public"
	}
	return pgx.Identifier{schema, name}.Sanitize(), nil
}
