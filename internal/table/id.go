package table

import "github.com/cdc-relay/cdc-relay/internal/event"

// IDType is the SQL type of the id column, for casts: "bigint", "integer" or "uuid".
func (o *Outbox) IDType() string { return "" }

// IDArg is the argument for $1::<IDType>.
func (o *Outbox) IDArg(id event.RowID) any { return nil }

// IDArray is the argument for ANY($1::<IDType>[]).
func (o *Outbox) IDArray(ids []event.RowID) any { return nil }

// ParseID reads an id as a person writes it.
func (o *Outbox) ParseID(s string) (event.RowID, error) { return event.RowID{}, nil }

// ScanID is the destination for Scan that puts an id column into dst. One destination serves all rows of a query.
func (o *Outbox) ScanID(dst *event.RowID) any { return nil }
