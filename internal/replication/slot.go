package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

const plugin = "pgoutput"

// slot is a replication slot as the catalog has it.
type slot struct {
	exists      bool
	plugin      string // empty: a physical slot
	database    string
	here        bool // in the database of the connection
	temporary   bool
	failover    bool   // standbys take it over
	activePID   int32  // of its walsender; 0: none
	application string // of the walsender
	invalid     string // why it can't be used any more; empty: it can
	ownPID      int32  // of the connection that looks
}

func readSlot(ctx context.Context, q table.Querier, name string) (slot, error) {
	s := slot{exists: true}
	err := q.QueryRow(ctx, findSlot, name).Scan(&s.plugin, &s.database, &s.here, &s.temporary, &s.failover, &s.activePID, &s.application,
		&s.invalid, &s.ownPID)
	if errors.Is(err, pgx.ErrNoRows) {
		return slot{}, nil
	}
	if err != nil {
		return slot{}, fmt.Errorf("look at slot %s: %w", name, err)
	}
	return s, nil
}

// foreign says why the slot of this name is somebody else's; nil: it isn't. Such a slot is never dropped.
func (s slot) foreign(name string) *condition {
	switch {
	case s.plugin == "":
		return because("slot_foreign", "choose another name for replication.slot", "slot %s is a physical replication slot", name)
	case s.plugin != plugin:
		return because("slot_foreign", "choose another name for replication.slot", "slot %s has the output plugin %s and not %s", name, s.plugin, plugin)
	case !s.here:
		return because("slot_foreign", "choose another name for replication.slot", "slot %s belongs to database %s", name, s.database)
	default:
		return nil
	}
}

func (s slot) busy(name string) *condition {
	return because("slot_active", "wait, or end that session: SELECT pg_terminate_backend("+fmt.Sprint(s.activePID)+");",
		"slot %s is in use by the session with pid %d (application_name %q)", name, s.activePID, s.application)
}

// slotChange is what ensureSlot did.
type slotChange struct {
	created bool
	// replaced says why a slot was dropped before; empty: none was.
	replaced string
}

// ensureSlot makes sure that there is a usable slot. stale, if not empty, is why an existing one must be replaced. busy is
// asked about a slot that is in use; it returns nil when the slot is free by now.
func ensureSlot(ctx context.Context, conn *pgx.Conn, cfg Config, stale string, busy func(slot) error) (slotChange, error) {
	if text := conn.PgConn().ParameterStatus("server_version"); cfg.Failover && major(text) < 17 {
		return slotChange{}, because("failover_slot", "set replication.failover: false",
			"the server is of version %s, and failover slots need version 17", text)
	}
	s, err := readSlot(ctx, conn, cfg.Slot)
	if err != nil {
		return slotChange{}, err
	}
	if !s.exists {
		return createSlot(ctx, conn, cfg, "")
	}
	if c := s.foreign(cfg.Slot); c != nil {
		return slotChange{}, c
	}
	if s.activePID != 0 && s.activePID != s.ownPID {
		if err := busy(s); err != nil {
			return slotChange{}, err
		}
	}
	switch {
	case s.invalid != "":
		stale = "it was invalidated: " + s.invalid
	case cfg.Temporary != s.temporary:
		stale = "it is of the other kind, temporary or not"
	case cfg.Failover && !s.failover:
		stale = "it is no failover slot"
	}
	if stale == "" {
		return slotChange{}, nil
	}
	drop := "SELECT pg_drop_replication_slot(" + quoteLiteral(cfg.Slot) + ");"
	if !cfg.Create {
		return slotChange{}, because("slot_unusable", drop+" "+createSlotSQL(cfg), "slot %s can't be used: %s", cfg.Slot, stale)
	}
	cfg.Failover = s.failover && !cfg.Temporary || cfg.Failover // who made it one wants its successor to be one
	if _, err := conn.Exec(ctx, dropSlot, cfg.Slot); err != nil && sqlState(err) != codeUndefinedObject {
		return slotChange{}, fmt.Errorf("drop slot %s: %w", cfg.Slot, err)
	}
	return createSlot(ctx, conn, cfg, stale)
}

// major is the number that a server's version begins with: 17.10, 18beta1, 15.18 (Debian 15.18-0).
func major(version string) (n int) {
	for _, c := range version {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// createSlot waits for every transaction that writes at this moment; lock_timeout bounds each of these waits. The
// command of the replication protocol, unlike the SQL function, holds no snapshot meanwhile.
func createSlot(ctx context.Context, conn *pgx.Conn, cfg Config, replaced string) (slotChange, error) {
	if !cfg.Create && !cfg.Temporary {
		return slotChange{}, because("slot_missing", createSlotSQL(cfg), "there is no slot %s", cfg.Slot)
	}
	err := createSlotOn(ctx, conn, cfg)
	if sqlState(err) == codeLockNotAvailable {
		return slotChange{replaced: replaced}, waitsFor(ctx, conn, cfg)
	}
	if err != nil {
		return slotChange{replaced: replaced}, fmt.Errorf("create slot %s: %w", cfg.Slot, err)
	}
	return slotChange{created: true, replaced: replaced}, nil
}

func createSlotOn(ctx context.Context, conn *pgx.Conn, cfg Config) error {
	if cfg.Failover {
		_, err := conn.PgConn().Exec(ctx, fmt.Sprintf(createFailoverSlot, cfg.Slot)).ReadAll()
		return err
	}
	_, err := pglogrepl.CreateReplicationSlot(ctx, conn.PgConn(), cfg.Slot, plugin, pglogrepl.CreateReplicationSlotOptions{
		Temporary: cfg.Temporary, SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication,
	})
	return err
}

func createSlotSQL(cfg Config) string {
	more := ""
	if cfg.Failover {
		more = ", failover => true"
	}
	return "SELECT pg_create_logical_replication_slot(" + quoteLiteral(cfg.Slot) + ", '" + plugin + "'" + more + ");"
}

// waitsFor names the transactions that keep a slot from being created.
func waitsFor(ctx context.Context, conn *pgx.Conn, cfg Config) error {
	rows, err := conn.Query(ctx, openTransactions)
	if err != nil {
		return fmt.Errorf("look for open transactions: %w", err)
	}
	var who []string
	var pid int32
	var application, gid string
	var seconds int64
	_, err = pgx.ForEachRow(rows, []any{&pid, &application, &gid, &seconds}, func() error {
		name := fmt.Sprintf("pid %d (application_name %q", pid, application)
		if pid == 0 {
			name = fmt.Sprintf("prepared transaction %q (prepared", gid)
		}
		who = append(who, fmt.Sprintf("%s, for %v)", name, time.Duration(seconds)*time.Second))
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for open transactions: %w", err)
	}
	if len(who) == 0 {
		who = []string{"they have ended by now"}
	}
	return because("slot_waits", "commit, roll back or terminate them, or wait",
		"the creation of slot %s waits for open transactions that write: %s", cfg.Slot, strings.Join(who, ", "))
}

// EnsureSlot makes sure that the slot of cfg exists and is usable, over a replication connection of its own; an
// invalidated one is replaced. It waits up to a minute for open transactions. A temporary slot needs no preparation.
// Call it after EnsurePublication; recreate says that the publication was created by that.
func EnsureSlot(ctx context.Context, cfg Config, recreate bool) (created bool, err error) {
	if cfg.Temporary {
		return false, nil
	}
	cfg = cfg.withDefaults()
	conn, _, err := open(ctx, cfg, time.Minute, nil)
	if err != nil {
		return false, explain(cfg, err)
	}
	defer shut(conn)
	stale := ""
	if recreate {
		stale = stalePublication
	}
	change, err := ensureSlot(ctx, conn, cfg, stale, func(s slot) error {
		if s.invalid == "" && stale == "" {
			return nil // a running relay uses it
		}
		return s.busy(cfg.Slot)
	})
	if err != nil {
		return change.created, explain(cfg, err)
	}
	return change.created, nil
}

const stalePublication = "it is older than its publication"
