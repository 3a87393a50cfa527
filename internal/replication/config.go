package replication

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says which slot and publication to use and how.
type Config struct {
	// DSN is where to connect: libpq's forms, with several hosts if wanted. It must reach Postgres itself or a pooler
	// that passes replication connections on. The role needs LOGIN and REPLICATION, and no privilege on the tables.
	DSN string
	// Slot is the name of the logical replication slot: lower-case letters, digits and _, at most 63.
	Slot string
	// Publication is the name of the publication, as in the catalog (neither folded nor quoted).
	Publication string
	// Create lets the stream create a missing slot or publication, add a missing table to the publication, and recreate
	// an invalidated slot. Without it, what is missing is said with the SQL that mends it.
	Create bool
	// Temporary uses a slot that ends with the connection: no WAL is retained while the relay is away. Needs no Create.
	Temporary bool
	// Failover makes the slot one that standbys take over (version 17 and later; see also synchronized_standby_slots there).
	Failover bool
	// Text asks for values in text form. The default, binary, costs the server less: about a fifth of its time.
	Text bool
	// WorkMem is logical_decoding_work_mem for this connection ("256MB"): transactions above it are spilled to the
	// server's disk. Empty: the server's setting.
	WorkMem string
	// Watchdog is how long the server may be silent, although asked for a sign at half of it, before the connection is
	// given up. Default 30 s.
	Watchdog time.Duration

	tick time.Duration // of the session's loop
}

// applicationName is what the server shows for the connection unless the DSN says otherwise.
const applicationName = "cdc-relay"

const (
	defaultWatchdog = 30 * time.Second
	connectTimeout  = 10 * time.Second // when the DSN has none; for each host
)

// maxMessage bounds one message of the server. Postgres itself can't build a larger one: its buffers end at 1 GiB.
const maxMessage = 1 << 30

func (c Config) withDefaults() Config {
	if c.Watchdog <= 0 {
		c.Watchdog = defaultWatchdog
	}
	if c.tick <= 0 {
		c.tick = defaultTick
	}
	return c
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if !slotName.MatchString(c.Slot) {
		errs = append(errs, fmt.Errorf("slot %q: Postgres allows 1 to 63 lower-case letters, digits and underscores", c.Slot))
	}
	if n := len(c.Publication); n == 0 || n > 63 || strings.ContainsRune(c.Publication, 0) {
		errs = append(errs, fmt.Errorf("publication %q: a name has 1 to 63 bytes", c.Publication))
	}
	if c.Failover && c.Temporary {
		errs = append(errs, errors.New("a temporary slot can't be a failover slot: it ends with the connection"))
	}
	if _, err := c.connConfig(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// connConfig is the configuration of the replication connection.
func (c Config) connConfig() (*pgx.ConnConfig, error) {
	cc, err := pgx.ParseConfig(c.DSN)
	if err != nil {
		// pgconn's error may quote the string, with the password in it.
		return nil, errors.New("the replication connection's DSN can't be read: it is neither a URL nor a keyword/value string of libpq, or a value in it is bad")
	}
	params := cc.RuntimeParams
	params["replication"] = "database"
	if params["application_name"] == "" {
		params["application_name"] = applicationName
	}
	// What the row decoder, and pgx for its simple protocol, take for granted.
	params["client_encoding"] = "UTF8"
	params["datestyle"] = "ISO"
	params["standard_conforming_strings"] = "on"
	// A walsender understands nothing but the simple protocol.
	cc.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	cc.MaxProtocolMessageBodyLen = maxMessage
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	if cc.ValidateConnect == nil {
		cc.ValidateConnect = validatePrimary // no target_session_attrs, or any: a standby is of no use here
	}
	return cc, nil
}
