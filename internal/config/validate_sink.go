package config

import (
	"regexp"
	"strconv"
	"strings"
)

// sink checks the section of the chosen sink.
func (l *loader) sink(c *Config) {
	switch c.Sink.Kind {
	case "kafka":
		l.kafka(&c.Sink.Kafka, c.Ordering.Mode == "key")
	case "redis":
		l.redis(&c.Sink.Redis)
	}
}

var kafkaVersion = regexp.MustCompile(`^(auto|[0-9]+(\.[0-9]+){2,3})$`)

func (l *loader) kafka(k *KafkaSink, ordered bool) {
	if len(k.Brokers) == 0 {
		l.wrong("sink.kafka.brokers", "must name at least one broker as host:port")
	}
	for i, b := range k.Brokers {
		l.address("sink.kafka.brokers["+strconv.Itoa(i)+"]", b)
	}
	switch {
	case k.Idempotent && k.Acks != "all":
		l.wrong("sink.kafka.acks", "must be all while sink.kafka.idempotent is true")
	case ordered && !k.Idempotent:
		l.wrong("sink.kafka.idempotent", "must be true while ordering.mode is key: without it a retry of the producer can "+
			"change the order of a key (or set ordering.mode: none)")
	}
	if ordered && (k.Partitioner == "round_robin" || k.Partitioner == "random") {
		l.wrong("sink.kafka.partitioner", "must depend on the key while ordering.mode is key, not be %s (or set "+
			"ordering.mode: none)", k.Partitioner)
	}
	if !kafkaVersion.MatchString(k.Version) {
		l.wrong("sink.kafka.version", "must be auto or a version such as 2.8.0, not %q", k.Version)
	}
	l.tls("sink.kafka.tls", k.TLS)
	l.sasl("sink.kafka.sasl", k.SASL)
}

func (l *loader) redis(r *RedisSink) {
	if r.URL == "" && !l.failed("sink.redis.url") {
		l.wrong("sink.redis.url", "is required for sink.kind redis")
	}
	l.url("sink.redis.url", r.URL, "redis", "rediss", "unix")
	for i, a := range r.Addrs {
		l.address("sink.redis.addrs["+strconv.Itoa(i)+"]", a)
	}
	if r.MaxLen > 0 && r.MaxAge > 0 {
		l.wrong("sink.redis.max_age", "and sink.redis.max_len are both set: keep one of them")
	}
	tls := r.TLS
	tls.Enabled = tls.Enabled || strings.HasPrefix(r.URL, "rediss://")
	l.tls("sink.redis.tls", tls)
}

func (l *loader) tls(key string, t TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		l.wrong(key, "needs both cert_file and key_file, or neither")
	}
	if !t.Enabled && t != (TLS{}) {
		l.wrong(key+".enabled", "must be true for the other keys of %s to have an effect", key)
	}
}

func (l *loader) sasl(key string, s SASL) {
	switch {
	case s.Mechanism == "none" && (s.Username != "" || s.Password != ""):
		l.wrong(key+".mechanism", "must be plain, scram-sha-256 or scram-sha-512 for username and password to have an effect")
	case s.Mechanism != "none" && s.Username == "":
		l.wrong(key+".username", "is required for the mechanism %s", s.Mechanism)
	case s.Mechanism != "none" && s.Password == "" && !l.failed(key+".password"):
		l.wrong(key+".password", "is required for the mechanism %s (or password_file)", s.Mechanism)
	}
}
