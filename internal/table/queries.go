package table

// All statements read the catalogs, which needs no privilege on the table itself; they lock nothing. Names are
// schema-qualified where a search_path could hide them.

// findQualified takes schema and name.
const findQualified = `
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2`

// findByPath takes a name and looks for it as an unqualified name in a statement would be.
const findByPath = `
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1))`

// findElsewhere takes a name and lists the schemas that have a table of that name.
const findElsewhere = `
SELECT coalesce(pg_catalog.string_agg(n.nspname, ', ' ORDER BY n.nspname), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind IN ('r', 'p')`

// attributes takes the table's oid. A domain counts as the type below it, down to the base: that is how its values are
// written on the wire.
const attributes = `
SELECT a.attname, a.attnotnull, a.attgenerated <> '', pg_catalog.format_type(a.atttypid, a.atttypmod),
       b.oid, b.typtype::text, b.typcategory::text
FROM pg_catalog.pg_attribute a
CROSS JOIN LATERAL (
  WITH RECURSIVE t AS (
    SELECT oid, typtype, typcategory, typbasetype FROM pg_catalog.pg_type WHERE oid = a.atttypid
    UNION ALL
    SELECT p.oid, p.typtype, p.typcategory, p.typbasetype
    FROM t JOIN pg_catalog.pg_type p ON p.oid = t.typbasetype WHERE t.typtype = 'd'
  )
  SELECT oid, typtype, typcategory FROM t WHERE typtype <> 'd'
) b
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum`

// enumLabels takes the oid of an enum type.
const enumLabels = `
SELECT coalesce(pg_catalog.array_agg(enumlabel::text ORDER BY enumsortorder), '{}')
FROM pg_catalog.pg_enum WHERE enumtypid = $1`

// privileges takes the table's oid, its schema's name, the names of the columns that are read and of those that are
// written. Grants on columns count like a grant on the table. DELETE exists for whole tables only.
const privileges = `
SELECT current_user::text,
       pg_catalog.has_schema_privilege($2, 'USAGE'),
       (SELECT bool_and(pg_catalog.has_column_privilege($1::oid, c, 'SELECT')) FROM unnest($3::text[]) c),
       (SELECT bool_and(pg_catalog.has_column_privilege($1::oid, c, 'UPDATE')) FROM unnest($4::text[]) c),
       pg_catalog.has_table_privilege($1::oid, 'DELETE'),
       pg_catalog.row_security_active($1::oid),
       coalesce((SELECT reloptions FROM pg_catalog.pg_class WHERE oid = $1), '{}')`

// indexes takes the table's oid. The first two key columns are NULL where an expression stands.
const indexes = `
SELECT i.indexrelid::pg_catalog.regclass::text, i.indisvalid AND i.indisready, i.indisunique, i.indnkeyatts,
       coalesce((SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum = i.indkey[0]), ''),
       coalesce((SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum = i.indkey[1]), ''),
       coalesce(pg_catalog.pg_get_expr(i.indpred, i.indrelid), '')
FROM pg_catalog.pg_index i
WHERE i.indrelid = $1`

// initLock keeps two Inits apart, also of different tables; it is released at the end of the transaction. The number is
// "cdcrelay" in ASCII.
const initLock = `SELECT pg_catalog.pg_advisory_xact_lock(7161958650404954489)`

// whereToMake takes a name without a schema: the schema in which it is found, else the one in which it would be made.
const whereToMake = `
SELECT coalesce(
  (SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
   WHERE c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1))),
  pg_catalog.current_schema(), '')`

// exists takes schema and name of a relation.
const exists = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname = $2)`

// schemaExists takes the schema's name.
const schemaExists = `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)`
