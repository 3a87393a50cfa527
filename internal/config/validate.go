package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// validate holds the settings against each other and against what only this program knows. What a field's tags say was
// checked before.
func (l *loader) validate(c *Config) {
	l.postgres(&c.Postgres)
	l.outboxes(c.Outboxes)
	l.names(c)
	if c.Dispatch.MaxInFlight < c.Dispatch.Lanes {
		l.wrong("dispatch.max_in_flight", "must be at least dispatch.lanes (%d): each lane holds an event",
			c.Dispatch.Lanes)
	}
	if c.Retry.Max < c.Retry.Initial {
		l.wrong("retry.max", "must be at least retry.initial (%s)", formatDuration(c.Retry.Initial))
	}
	l.web(c)
	l.sink(c)
}

// wrong notes a problem of a key at the place where it was set; for an item of a list, else at the list's.
func (l *loader) wrong(key, format string, args ...any) {
	at, ok := l.origins[key]
	for path := key; !ok && path != ""; at, ok = l.origins[path] {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	l.fail(key, at, format, args...)
}

func (l *loader) postgres(p *Postgres) {
	if p.DSN == "" && !l.dsnOptional && !l.failed("postgres.dsn") {
		l.wrong("postgres.dsn", "is required: set it in the file or CDC_RELAY_POSTGRES_DSN")
	}
	l.dsn("postgres.dsn", p.DSN)
	l.dsn("postgres.direct_dsn", p.DirectDSN)
}

// failed says whether there is a problem with the key, or with the file that it is read from, already.
func (l *loader) failed(key string) bool {
	return slices.ContainsFunc(l.problems, func(p problem) bool { return p.Key == key || p.Key == key+"_file" })
}

// dsn checks a connection string. The error repeats it, with what it takes for the password masked; but it can be
// wrong about where that begins and ends, so only the reason behind it is taken.
func (l *loader) dsn(key, dsn string) {
	if dsn == "" {
		return
	}
	if _, err := pgconn.ParseConfig(dsn); err != nil {
		reason := err.Error()
		if i := strings.LastIndex(reason, "`: "); i >= 0 {
			reason = reason[i+len("`: "):]
		}
		l.wrong(key, "is no connection string as libpq takes it: %s", reason)
	}
}

// columns are the names that outboxes[].columns can map; a test holds them against package table.
var columns = []string{
	"id", "message_id", "topic", "key", "payload", "headers", "event_type", "status", "attempts", "next_attempt_at",
	"last_error", "created_at", "published_at",
}

func (l *loader) outboxes(outboxes []Outbox) {
	if len(outboxes) == 0 {
		l.wrong("outboxes", "must name at least one table")
	}
	seen := map[string]string{}
	for i, o := range outboxes {
		key := "outboxes[" + strconv.Itoa(i) + "]"
		if o.Table == "" {
			l.wrong(key+".table", "is required: the name of the outbox table, such as public.outbox")
		} else if first, ok := seen[o.Table]; ok {
			l.wrong(key+".table", "is %s, as %s is: each table is served once", o.Table, first)
		} else {
			seen[o.Table] = key + ".table"
		}
		l.mapping(key, o)
		if s := o.Statuses; s.Pending == s.Published || s.Pending == s.Dead || s.Published == s.Dead {
			l.wrong(key+".statuses", "must be three different words, not %q, %q and %q", s.Pending, s.Published, s.Dead)
		}
	}
}

// mapping checks the names of the columns.
func (l *loader) mapping(key string, o Outbox) {
	for name, column := range o.Columns {
		path := key + ".columns." + name
		switch {
		case !slices.Contains(columns, name):
			hint := ""
			if n := nearest(name, columns); n != "" {
				hint = " (did you mean " + n + "?)"
			}
			l.wrong(path, "is not a column that the relay knows%s; it knows %s", hint, strings.Join(columns, ", "))
		case column == "" && (name == "id" || name == "payload" || name == "status"):
			l.wrong(path, "can't be empty: without this column there is no outbox")
		}
	}
}

// maxName is the longest name that Postgres keeps, in bytes (NAMEDATALEN - 1).
const maxName = 63

// slotName is Postgres' rule for the names of slots (ReplicationSlotValidateName).
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (l *loader) names(c *Config) {
	if !slotName.MatchString(c.Replication.Slot) {
		l.wrong("replication.slot", "must be 1 to 63 of the characters a-z, 0-9 and _, not %q", c.Replication.Slot)
	}
	l.name("replication.publication", c.Replication.Publication)
	if c.Wake.Kind != "none" {
		l.name("wake.channel", c.Wake.Channel)
	}
}

func (l *loader) name(key, name string) {
	if name == "" || len(name) > maxName {
		l.wrong(key, "must be 1 to %d bytes long, not %d", maxName, len(name))
	}
}

func (l *loader) web(c *Config) {
	if c.HTTP.Listen != "" && c.HTTP.Listen != "off" {
		l.address("http.listen", c.HTTP.Listen)
	}
	l.url("alert.webhook.url", c.Alert.Webhook.URL, "http", "https")
	l.url("wake.redis_url", c.Wake.RedisURL, "redis", "rediss", "unix")
}

// address checks host:port; the host may be empty.
func (l *loader) address(key, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		l.wrong(key, "must be host:port, not %q", address)
	}
}

// url checks a URL without showing it: there may be a password or a token in it.
func (l *loader) url(key, text string, schemes ...string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && u.Scheme != "unix" {
		l.wrong(key, "must be a URL that begins with %s://", strings.Join(schemes, ":// or "))
	}
}
