package replication

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// condition is why there is no stream now, said so that an operator can act on it. It is an error.
type condition struct {
	kind   string // a constant in snake_case; what is logged repeatedly only at a limited rate
	reason string // a sentence without its full stop
	remedy string // SQL or a setting; empty when there is nothing to do but wait
	err    error  // its cause, if another error is
}

func (c *condition) Error() string {
	var b strings.Builder
	b.WriteString(c.reason)
	if c.err != nil {
		fmt.Fprintf(&b, ": %v", c.err)
	}
	if c.remedy != "" {
		fmt.Fprintf(&b, " (%s)", c.remedy)
	}
	return b.String()
}

func (c *condition) Unwrap() error { return c.err }

func because(kind, remedy, format string, args ...any) *condition {
	return &condition{kind: kind, remedy: remedy, reason: fmt.Sprintf(format, args...)}
}

// errStopped is what Lost is told when the stream ends on request.
var errStopped = errors.New("stopped")

// errSilent ends a connection on which the watchdog heard nothing.
var errSilent = errors.New("nothing came from the server, although it was asked for a sign of life")

// errEnded is the orderly end of the stream by the server, as at its shutdown.
var errEnded = errors.New("the server ended the stream")

// errSkipped is the notice by which version 18 tells that it skips the rows of a publication.
var errSkipped = errors.New("the server can't load the publication")

// SQLSTATEs by which causes are told apart; the texts differ between versions and languages.
const (
	codeInsufficientPrivilege = "42501"
	codeUndefinedObject       = "42704"
	codeDuplicateObject       = "42710"
	codeTooManyConnections    = "53300"
	codeConfigurationLimit    = "53400"
	codeNotInState            = "55000"
	codeObjectInUse           = "55006"
	codeLockNotAvailable      = "55P03"
	codeReadOnly              = "25006"
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// explain makes a condition of any error of an attempt.
func explain(cfg Config, err error) *condition {
	var c *condition
	if errors.As(err, &c) {
		return c
	}
	c = &condition{kind: "connection", reason: "the replication connection failed", err: err}
	switch code := sqlState(err); {
	case errors.Is(err, pgconn.ErrReadOnlyConnection), code == codeReadOnly:
		return standby()
	case errors.Is(err, errSilent):
		c.kind, c.reason = "silent", fmt.Sprintf("the replication connection was given up after %v", cfg.Watchdog)
	case errors.Is(err, errMalformed):
		c.kind, c.reason = "malformed", "the stream can't be decoded"
	case errors.Is(err, errSkipped), code == codeUndefinedObject:
		c.kind, c.reason = "undefined_object", "the slot or the publication is gone, or the publication is younger than a transaction"
	case code == codeInsufficientPrivilege:
		c.kind, c.reason = "privilege", "the role of the replication connection lacks a privilege"
		c.remedy = alterRole(cfg)
	case code == codeTooManyConnections:
		c.kind, c.reason = "too_many_connections", "the server takes no further replication connection"
		c.remedy = "raise max_wal_senders, or max_connections"
	case code == codeConfigurationLimit:
		c.kind, c.reason = "too_many_slots", "the server has no free replication slot"
		c.remedy = "raise max_replication_slots, or drop a slot that nobody needs"
	case code == codeObjectInUse:
		c.kind, c.reason = "slot_active", fmt.Sprintf("slot %s is in use", cfg.Slot)
	case code == codeLockNotAvailable:
		c.kind, c.reason = "lock", "the setup waited too long for a lock"
	case code == "":
	default:
		c.kind = "server_" + code
	}
	return c
}

func standby() *condition {
	return because("standby", "let the DSN name the primary, or all hosts of the cluster",
		"no host of the DSN is a primary that accepts writes: the server is a standby, or read-only")
}

func alterRole(cfg Config) string {
	role := "the role"
	if cc, err := cfg.connConfig(); err == nil {
		role = pgx.Identifier{cc.User}.Sanitize()
	}
	return "ALTER ROLE " + role + " REPLICATION; on Amazon RDS: GRANT rds_replication TO " + role + ";"
}
