package redisstream

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// place is where the servers are and who the relay is there.
type place struct {
	addrs              []string // of one server (a path: its Unix socket), the Sentinels, or some nodes of a Cluster
	master             string   // the Sentinels' name of it; empty: no Sentinels
	cluster            bool
	username, password string
	database           int
	tls                bool
}

// String is for people, and has no password.
func (p *place) String() string {
	addrs := strings.Join(p.addrs, ",")
	switch {
	case p.master != "":
		return fmt.Sprintf("redis %s (by the Sentinels %s)", p.master, addrs)
	case p.cluster:
		return "redis cluster " + addrs
	default:
		return "redis " + addrs
	}
}

// place reads the URL and what goes with it. What is wrong never shows the URL: it may hold a password.
func (c *Config) place(wrong func(key, format string, args ...any)) place {
	p := place{addrs: c.Addrs, master: c.MasterName, tls: c.TLS.Enabled}
	u, err := url.Parse(c.URL)
	if err != nil {
		wrong("url", "is no URL (a password's special characters need %%-encoding)")
		return p
	}
	p.username = u.User.Username()
	p.password, _ = u.User.Password()
	query := u.Query()
	database := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis", "rediss":
		p.tls = p.tls || u.Scheme == "rediss"
		p.named(u, query, wrong)
	case "unix":
		database = query.Get("db")
		query.Del("db")
		if u.Path == "" || u.Host != "" {
			wrong("url", "must be unix:///path/to/socket")
		}
		if len(p.addrs) == 0 {
			p.addrs = []string{u.Path}
		}
	default:
		wrong("url", "must begin with redis://, rediss:// or unix://")
	}
	for name := range query {
		wrong("url", "has the parameter %q, which isn't taken here", name)
	}
	if database != "" {
		if p.database, err = strconv.Atoi(database); err != nil || p.database < 0 {
			wrong("url", "must end with the number of a database, such as /0")
		}
	}
	p.check(c, wrong)
	return p
}

// named takes the addresses from a URL, unless they are given beside it.
func (p *place) named(u *url.URL, query url.Values, wrong func(key, format string, args ...any)) {
	port := "6379"
	if name := query.Get("master_name"); name != "" {
		port = "26379"
		if p.master != "" && p.master != name {
			wrong("master_name", "and the URL's master_name differ: keep one of them")
		}
		p.master = name
	}
	more := query["addr"]
	query.Del("master_name")
	query.Del("addr")
	if len(p.addrs) > 0 {
		return
	}
	p.cluster = p.master == "" && len(more) > 0
	host := u.Hostname()
	if host == "" {
		host = "localhost"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	p.addrs = append([]string{net.JoinHostPort(host, port)}, more...)
}

func (p *place) check(c *Config, wrong func(key, format string, args ...any)) {
	p.cluster = p.cluster || p.master == "" && len(c.Addrs) > 0
	for i, addr := range p.addrs {
		if strings.HasPrefix(addr, "/") {
			continue
		}
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			wrong(fmt.Sprintf("addrs[%d]", i), "%q must be host:port", addr)
		}
	}
	if p.cluster && p.database != 0 {
		wrong("url", "must name database 0: a Cluster has no other")
	}
	if p.master == "" && (c.SentinelUsername != "" || c.SentinelPassword != "") {
		wrong("master_name", "must be set for sentinel_username and sentinel_password to have an effect")
	}
}
