package kafkatest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listener is a way into the brokers, each on a port of its own.
type Listener string

// The listeners. Plain is always there, SASL with Options.Users, TLS and MutualTLS with Options.TLS, SASLTLS with both,
// and Proxied with Options.Via.
const (
	Plain     Listener = "PLAINTEXT"
	SASL      Listener = "SASL"    // mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512
	TLS       Listener = "TLS"     // the client may stay anonymous
	MutualTLS Listener = "MTLS"    // the client must show a certificate
	SASLTLS   Listener = "SASLTLS" // SASL over TLS
	Proxied   Listener = "PROXIED" // plain, and the brokers tell clients the proxies' addresses

	controller Listener = "CONTROLLER"
)

var protocols = map[Listener]string{
	Plain: "PLAINTEXT", Proxied: "PLAINTEXT", controller: "PLAINTEXT",
	SASL: "SASL_PLAINTEXT", SASLTLS: "SASL_SSL", TLS: "SSL", MutualTLS: "SSL",
}

func (o *Options) listeners() []Listener {
	l := []Listener{Plain, controller}
	if len(o.Users) > 0 {
		l = append(l, SASL)
	}
	if o.TLS {
		l = append(l, TLS, MutualTLS)
	}
	if o.TLS && len(o.Users) > 0 {
		l = append(l, SASLTLS)
	}
	if o.Via != nil {
		l = append(l, Proxied)
	}
	return l
}

// properties are a node's server.properties: small, quick to notice a dead neighbour, and without topics that appear by
// themselves.
func (c *Cluster) properties(n *node) map[string]string {
	replicas := strconv.Itoa(min(3, len(c.nodes)))
	p := map[string]string{
		"process.roles":              "broker,controller",
		"node.id":                    strconv.Itoa(n.id),
		"controller.listener.names":  string(controller),
		"inter.broker.listener.name": string(Plain),
		"log.dirs":                   n.dataDir(),
		"auto.create.topics.enable":  "false",
		"num.network.threads":        "2",
		"num.io.threads":             "4",
		"num.partitions":             "1",

		"default.replication.factor":               replicas,
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            "1",
		"offsets.topic.num.partitions":             "1",
		"transaction.state.log.num.partitions":     "1",
		"group.initial.rebalance.delay.ms":         "0",

		"log.cleaner.dedupe.buffer.size": "4194304", // the default alone is a third of the heap
		"broker.heartbeat.interval.ms":   "500",
		"broker.session.timeout.ms":      "3000", // also how long a killed node's id stays taken
	}
	c.addListeners(p, n)
	c.addSASL(p)
	c.addTLS(p)
	if len(c.options.Superusers) > 0 {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS;" + strings.Join(c.options.Superusers, ";") // the brokers themselves are anonymous
	}
	maps.Copy(p, c.options.Properties)
	return p
}

func (c *Cluster) addListeners(p map[string]string, n *node) {
	var listeners, advertised, protocolMap, voters []string
	for _, l := range c.options.listeners() {
		at := fmt.Sprintf("%s://%s", l, n.places[l].Addr())
		listeners = append(listeners, at)
		protocolMap = append(protocolMap, fmt.Sprintf("%s:%s", l, protocols[l]))
		if l == Proxied {
			at = fmt.Sprintf("%s://%s", l, n.via)
		}
		if l != controller {
			advertised = append(advertised, at)
		}
	}
	for _, other := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id, other.places[controller].Addr()))
	}
	p["listeners"] = strings.Join(listeners, ",")
	p["advertised.listeners"] = strings.Join(advertised, ",")
	p["listener.security.protocol.map"] = strings.Join(protocolMap, ",")
	p["controller.quorum.voters"] = strings.Join(voters, ",")
}

// addSASL gives PLAIN its users; those of SCRAM are in the cluster's metadata (addScramUsers).
func (c *Cluster) addSASL(p map[string]string) {
	if len(c.options.Users) == 0 {
		return
	}
	p["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, name := range slices.Sorted(maps.Keys(c.options.Users)) {
		plain += fmt.Sprintf(" user_%s=%q", name, c.options.Users[name])
	}
	for _, l := range []Listener{SASL, SASLTLS} {
		prefix := "listener.name." + strings.ToLower(string(l))
		p[prefix+".plain.sasl.jaas.config"] = plain + ";"
		for _, scram := range []string{"256", "512"} {
			p[prefix+".scram-sha-"+scram+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
}

func (c *Cluster) addTLS(p map[string]string) {
	if !c.options.TLS {
		return
	}
	p["ssl.keystore.type"], p["ssl.truststore.type"] = "PEM", "PEM"
	p["ssl.keystore.location"], p["ssl.truststore.location"] = c.certificates.Server, c.certificates.CA
	p["listener.name.mtls.ssl.client.auth"] = "required"
}

// format writes what kafka-storage format would, without another start of Java: the directory's identity, and the
// properties. Kafka makes the first metadata record by itself.
func (c *Cluster) format(n *node) error {
	if err := os.Mkdir(n.dataDir(), 0o755); err != nil {
		return err
	}
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\n", c.id, n.id)
	if err := os.WriteFile(filepath.Join(n.dataDir(), "meta.properties"), []byte(meta), 0o644); err != nil {
		return err
	}
	var text strings.Builder
	properties := c.properties(n)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		// A backslash is the escape character of the format.
		fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(properties[key], `\`, `\\`))
	}
	return os.WriteFile(n.file("server.properties"), []byte(text.String()), 0o600)
}
