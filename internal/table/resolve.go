package table

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
)

// ResolveError says why a configured table can't be used: everything that is wrong with it, at once.
type ResolveError struct {
	Table    string // as configured
	Problems []preflight.Finding
}

// Error implements error.
func (e *ResolveError) Error() string { return "" }

// Resolve looks the table up and checks the mapping. The error is a *ResolveError when the table can't be used like
// this, and anything else when the question couldn't be asked.
func Resolve(ctx context.Context, q Querier, index int32, spec Spec) (*Outbox, error) {
	return nil, errors.New("not yet")
}
