package table

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// IDType is the SQL type of the id column, for casts: "bigint", "integer" or "uuid".
func (o *Outbox) IDType() string { return o.idKind.String() }

// IDArg is the argument for $1::<IDType>.
func (o *Outbox) IDArg(id event.RowID) any {
	switch o.idKind {
	case kindUUID:
		return pgtype.UUID{Bytes: id.Bytes(), Valid: true}
	case kindInt4:
		return int32(id.Int())
	default:
		return id.Int()
	}
}

// IDArray is the argument for ANY($1::<IDType>[]), in the order of ids.
func (o *Outbox) IDArray(ids []event.RowID) any {
	switch o.idKind {
	case kindUUID:
		a := make([]pgtype.UUID, len(ids))
		for i, id := range ids {
			a[i] = pgtype.UUID{Bytes: id.Bytes(), Valid: true}
		}
		return a
	case kindInt4:
		a := make([]int32, len(ids))
		for i, id := range ids {
			a[i] = int32(id.Int())
		}
		return a
	default:
		a := make([]int64, len(ids))
		for i, id := range ids {
			a[i] = id.Int()
		}
		return a
	}
}

// ParseID reads an id as a person writes it.
func (o *Outbox) ParseID(s string) (event.RowID, error) {
	if o.idKind == kindUUID {
		u, err := parseUUID([]byte(s))
		if err != nil {
			return event.RowID{}, fmt.Errorf("id %q of %s is no uuid", s, o)
		}
		return event.UUIDID(o.Index, u), nil
	}
	bits := 64
	if o.idKind == kindInt4 {
		bits = 32
	}
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return event.RowID{}, fmt.Errorf("id %q of %s is no %s", s, o, o.IDType())
	}
	return event.IntID(o.Index, n), nil
}

// ScanID is the destination for Scan that puts an id column into dst. One destination serves all rows of a query.
func (o *Outbox) ScanID(dst *event.RowID) any {
	if o.idKind == kindUUID {
		return &uuidDest{o.Index, dst}
	}
	return &intDest{o.Index, dst}
}

type intDest struct {
	index int32
	dst   *event.RowID
}

// ScanInt64 implements pgtype.Int64Scanner.
func (d *intDest) ScanInt64(v pgtype.Int8) error {
	if !v.Valid {
		return errNullID
	}
	*d.dst = event.IntID(d.index, v.Int64)
	return nil
}

type uuidDest struct {
	index int32
	dst   *event.RowID
}

// ScanUUID implements pgtype.UUIDScanner.
func (d *uuidDest) ScanUUID(v pgtype.UUID) error {
	if !v.Valid {
		return errNullID
	}
	*d.dst = event.UUIDID(d.index, v.Bytes)
	return nil
}

var errNullID = errors.New("the id is NULL")
