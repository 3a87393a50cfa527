package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Statements is the SQL that sets up publication and slot, for a person to run: in this order, each in its own
// transaction. tables are quoted names (Outbox.Ident). A temporary slot needs no statement.
func Statements(cfg Config, tables []string) []string {
	out := []string{createPublication(cfg.Publication, tables)}
	if !cfg.Temporary {
		out = append(out, createSlotSQL(cfg))
	}
	return out
}

// minVersion is the oldest server that the relay is tested with.
const minVersion = 14

// facts are what the server says of itself.
type facts struct {
	version           int
	versionText       string
	standby           bool
	walLevel          string
	mayReplicate      bool
	maxSlots, slots   int
	maxSenders, taken int
	keepSize          string
	senderTimeout     int64
}

// Check looks at everything the stream needs, over an ordinary connection. What only the stream needs is a warning at
// most, since the relay polls without it. Findings about outboxes need them resolved; with none the publication's
// tables aren't looked at.
func Check(ctx context.Context, q table.Querier, cfg Config, outboxes []*table.Outbox) []preflight.Finding {
	var f facts
	cc, err := cfg.connConfig()
	if err == nil {
		err = q.QueryRow(ctx, surroundings, cc.User).Scan(&f.version, &f.versionText, &f.standby, &f.walLevel, &f.mayReplicate,
			&f.maxSlots, &f.slots, &f.maxSenders, &f.taken, &f.keepSize, &f.senderTimeout)
	}
	if err != nil {
		return []preflight.Finding{{Severity: preflight.Failure, Subject: "server", Detail: fmt.Sprintf("it can't be asked: %v", err)}}
	}
	s, err := readSlot(ctx, q, cfg.Slot)
	if err != nil {
		return append(f.findings(cfg, false), preflight.Finding{Severity: preflight.Warning, Subject: "slot " + cfg.Slot, Detail: err.Error()})
	}
	out := append(f.findings(cfg, s.exists), checkPublication(ctx, q, cfg, outboxes)...)
	return append(out, s.finding(cfg))
}

func ok(subject, format string, args ...any) preflight.Finding {
	return preflight.Finding{Severity: preflight.OK, Subject: subject, Detail: fmt.Sprintf(format, args...)}
}

func warning(subject, remedy, format string, args ...any) preflight.Finding {
	return preflight.Finding{Severity: preflight.Warning, Subject: subject, Remedy: remedy, Detail: fmt.Sprintf(format, args...)}
}

func (f facts) findings(cfg Config, slotExists bool) []preflight.Finding {
	out := []preflight.Finding{f.versionFinding()}
	if f.standby {
		c := standby()
		out = append(out, preflight.Finding{Severity: preflight.Failure, Subject: "server", Detail: c.reason + ".", Remedy: c.remedy})
	}
	if f.walLevel == "logical" {
		out = append(out, ok("wal_level", "logical"))
	} else {
		out = append(out, warning("wal_level", "ALTER SYSTEM SET wal_level = 'logical'; and restart the server",
			"It is %s: there is no stream, and the relay only polls.", f.walLevel))
	}
	if f.mayReplicate {
		out = append(out, ok("privilege REPLICATION", "the role has it"))
	} else {
		out = append(out, warning("privilege REPLICATION", alterRole(cfg), "The role lacks it: there is no stream, and the relay only polls."))
	}
	return append(out, f.capacity(slotExists), f.senders(), f.retention(cfg), f.timeout())
}

func (f facts) versionFinding() preflight.Finding {
	if f.version < minVersion*10000 {
		return preflight.Finding{Severity: preflight.Failure, Subject: "server version",
			Detail: fmt.Sprintf("It is %s, and the oldest that works is %d.", f.versionText, minVersion), Remedy: "upgrade the server"}
	}
	return ok("server version", "%s", f.versionText)
}

func (f facts) capacity(slotExists bool) preflight.Finding {
	if !slotExists && f.slots >= f.maxSlots {
		return warning("max_replication_slots", fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d; and restart the server, or drop a slot that nobody needs", f.maxSlots+1),
			"All %d slots are in use: the relay's can't be created.", f.maxSlots)
	}
	return ok("max_replication_slots", "%d of %d in use", f.slots, f.maxSlots)
}

func (f facts) senders() preflight.Finding {
	if f.taken >= f.maxSenders {
		return warning("max_wal_senders", fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; and restart the server", f.maxSenders+1),
			"All %d are in use. A running relay is one of them.", f.maxSenders)
	}
	return ok("max_wal_senders", "%d of %d in use", f.taken, f.maxSenders)
}

func (f facts) retention(cfg Config) preflight.Finding {
	if f.keepSize == "-1" && !cfg.Temporary {
		return warning("max_slot_wal_keep_size", "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf();",
			"It is unlimited: while no relay runs, its slot keeps WAL until the disk is full. A slot that was given up costs the relay nothing.")
	}
	return ok("max_slot_wal_keep_size", "%s", f.keepSize)
}

func (f facts) timeout() preflight.Finding {
	if f.senderTimeout == 0 {
		return preflight.Finding{Severity: preflight.Note, Subject: "wal_sender_timeout",
			Detail: "It is 0: the server never gives up a dead replication connection. The relay sets 30 s for its own."}
	}
	return ok("wal_sender_timeout", "%d ms", f.senderTimeout)
}

func checkPublication(ctx context.Context, q table.Querier, cfg Config, outboxes []*table.Outbox) []preflight.Finding {
	subject := "publication " + cfg.Publication
	p, err := readPublication(ctx, q, cfg.Publication, outboxes)
	if err != nil {
		return []preflight.Finding{warning(subject, "", "%v", err)}
	}
	if !p.exists && len(outboxes) == 0 {
		return []preflight.Finding{warning(subject, "", "It doesn't exist, and there is no outbox yet that it could publish.")}
	}
	var out []preflight.Finding
	if p.more {
		out = append(out, preflight.Finding{Severity: preflight.Note, Subject: subject,
			Detail: "It publishes more than inserts: the server sends what the relay throws away, and a table without a replica identity can't be updated.",
			Remedy: "ALTER PUBLICATION " + pgx.Identifier{cfg.Publication}.Sanitize() + " SET (publish = 'insert');"})
	}
	defects := p.defects(cfg.Publication, outboxes)
	for _, d := range defects {
		f := warning(subject, d.sql, "%s: without that the stream doesn't bring all rows, and the poll must.", d.detail)
		if d.harmless && cfg.Create {
			f.Severity, f.Detail = preflight.Note, d.detail+". The relay does it when it starts, if it owns the tables."
		}
		out = append(out, f)
	}
	if len(defects) == 0 {
		out = append(out, ok(subject, "it covers the outboxes"))
	}
	return out
}

func (s slot) finding(cfg Config) preflight.Finding {
	subject := "slot " + cfg.Slot
	switch foreign := s.foreign(cfg.Slot); {
	case !s.exists && cfg.Temporary:
		return ok(subject, "temporary: it exists while the relay runs")
	case !s.exists && cfg.Create:
		return preflight.Finding{Severity: preflight.Note, Subject: subject, Detail: "It doesn't exist. The relay creates it when it starts.", Remedy: createSlotSQL(cfg)}
	case !s.exists:
		return warning(subject, createSlotSQL(cfg), "It doesn't exist: there is no stream, and the relay only polls.")
	case foreign != nil:
		return warning(subject, foreign.remedy, "%s: there is no stream, and the relay only polls.", foreign.reason)
	case s.invalid != "" && cfg.Create:
		return preflight.Finding{Severity: preflight.Note, Subject: subject, Detail: "It was invalidated (" + s.invalid + "). The relay recreates it when it starts, and loses nothing by it."}
	case s.invalid != "":
		return warning(subject, "SELECT pg_drop_replication_slot("+quoteLiteral(cfg.Slot)+"); "+createSlotSQL(cfg),
			"It was invalidated (%s): there is no stream, and the relay only polls.", s.invalid)
	case cfg.Failover && !s.failover:
		return preflight.Finding{Severity: preflight.Note, Subject: subject, Detail: "It is no failover slot, although replication.failover is true. The relay recreates it when it starts, and loses nothing by it."}
	case s.activePID != 0:
		return ok(subject, "in use by pid %d (application_name %q)", s.activePID, s.application)
	default:
		return ok(subject, "it exists, and nobody uses it")
	}
}
