package table

import "github.com/jackc/pgx/v5/pgtype"

// kind is how the bytes of a column's type are read.
type kind uint8

const (
	kindOther kind = iota
	kindText       // what is the same in both formats: text, varchar, name, citext, every enum
	kindChar       // char(n): the same, with spaces at the end that don't count
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

// builtin is the kind of a type with a fixed oid, kindOther for any other type.
func builtin(oid uint32) kind {
	switch oid {
	case pgtype.TextOID, pgtype.VarcharOID, pgtype.NameOID:
		return kindText
	case pgtype.BPCharOID:
		return kindChar
	case pgtype.JSONOID:
		return kindJSON
	case pgtype.JSONBOID:
		return kindJSONB
	case pgtype.ByteaOID:
		return kindBytea
	case pgtype.Int2OID:
		return kindInt2
	case pgtype.Int4OID:
		return kindInt4
	case pgtype.Int8OID:
		return kindInt8
	case pgtype.UUIDOID:
		return kindUUID
	case pgtype.TimestamptzOID:
		return kindTimestamptz
	case pgtype.TimestampOID:
		return kindTimestamp
	default:
		return kindOther
	}
}

// firstUserOID is where the oids of types end that every database has: FirstNormalObjectId.
const firstUserOID = 16384

// kindOf is the kind of a base type as the catalog describes it. typtype 'e' is an enum; a type that an extension puts
// into category 'S', such as citext, is sent like text.
func kindOf(oid uint32, typtype, category string) kind {
	if typtype == "e" || oid >= firstUserOID && category == "S" {
		return kindText
	}
	return builtin(oid)
}

var (
	idKinds        = []kind{kindInt8, kindInt4, kindUUID}
	messageIDKinds = []kind{kindUUID, kindText, kindChar}
	wordKinds      = []kind{kindText, kindChar, kindInt8, kindInt4, kindInt2, kindUUID}
	payloadKinds   = []kind{kindJSON, kindJSONB, kindText, kindChar, kindBytea}
	headerKinds    = []kind{kindJSONB, kindJSON, kindText, kindChar}
	textKinds      = []kind{kindText, kindChar}
	countKinds     = []kind{kindInt4, kindInt8, kindInt2}
	instantKinds   = []kind{kindTimestamptz}
	timeKinds      = []kind{kindTimestamptz, kindTimestamp}
)

// String is the type as a person would write it in a table.
func (k kind) String() string {
	return [...]string{"another type", "text", "char", "json", "jsonb", "bytea", "smallint", "integer", "bigint", "uuid",
		"timestamptz", "timestamp"}[k]
}
