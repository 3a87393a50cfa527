package kafka

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func TestTheDefaultsAreSafeAndComplete(t *testing.T) {
	c := Config{Ordered: true}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := c.clientConfig()
	if err != nil {
		t.Fatal(err)
	}
	p := s.Producer
	if !p.Idempotent || p.RequiredAcks != sarama.WaitForAll || s.Net.MaxOpenRequests != 1 || p.Flush != (sarama.Config{}.Producer.Flush) {
		t.Errorf("idempotent %v, acks %v, open requests %d, flush %+v", p.Idempotent, p.RequiredAcks, s.Net.MaxOpenRequests, p.Flush)
	}
	if reflect.ValueOf(p.Partitioner).Pointer() != reflect.ValueOf(sarama.NewMurmur2Partitioner).Pointer() {
		t.Error("the partitioner isn't murmur2")
	}
	if s.ClientID != "cdc-relay" || p.MaxMessageBytes != 1<<20 || p.Timeout >= s.Net.ReadTimeout || s.Net.ReadTimeout != 10*time.Second {
		t.Errorf("%s, %d bytes, timeouts %v and %v", s.ClientID, p.MaxMessageBytes, p.Timeout, s.Net.ReadTimeout)
	}
}

func TestWithDefaultsLeavesTheOriginalAlone(t *testing.T) {
	var c Config
	_ = c.WithDefaults()
	if !reflect.DeepEqual(c, Config{}) {
		t.Errorf("%+v", c)
	}
}

func TestEachBadSettingIsAnErrorWithItsKey(t *testing.T) {
	no := false
	for _, test := range []struct {
		name string
		c    Config
		want string // the beginning of the only line
	}{
		{"broker without a port", Config{Brokers: []string{"a:1", "b"}}, `sink.kafka.brokers[1]: "b" must be host:port`},
		{"acks", Config{Acks: "none", Idempotent: &no}, `sink.kafka.acks: "none" must be one of all, leader`},
		{"compression", Config{Compression: "zip"}, `sink.kafka.compression: "zip" must be one of gzip, lz4, none, snappy, zstd`},
		{"partitioner", Config{Partitioner: "x"}, `sink.kafka.partitioner: "x" must be one of crc32, fnv1a, murmur2, random, round_robin`},
		{"version", Config{Version: "two"}, `sink.kafka.version: "two" must be`},
		{"old version", Config{Version: "0.10.2"}, `sink.kafka.version: "0.10.2" must be`},
		{"size", Config{MaxMessageBytes: 1}, "sink.kafka.max_message_bytes: must be from 1024"},
		{"timeout", Config{Timeout: time.Millisecond}, "sink.kafka.timeout: must be at least 100ms"},
		{"acks of an idempotent producer", Config{Acks: "leader"}, "sink.kafka.acks: must be all while sink.kafka.idempotent is true"},
		{"half a certificate", Config{TLS: TLS{Enabled: true, CertFile: "x"}}, "sink.kafka.tls: cert_file and key_file"},
		{"tls that is off", Config{TLS: TLS{CAFile: "x"}}, "sink.kafka.tls.enabled: must be true"},
		{"mechanism", Config{SASL: SASL{Mechanism: "PLAIN", Username: "a", Password: "b"}}, `sink.kafka.sasl.mechanism: "PLAIN" must be one of`},
		{"no mechanism", Config{SASL: SASL{Username: "a"}}, "sink.kafka.sasl.mechanism: must be plain"},
		{"no user", Config{SASL: SASL{Mechanism: "plain", Password: "b"}}, "sink.kafka.sasl.username: is required"},
		{"no password", Config{SASL: SASL{Mechanism: "plain", Username: "a"}}, "sink.kafka.sasl.password: is required"},
		{"two passwords", Config{SASL: SASL{Mechanism: "plain", Username: "a", Password: "b", PasswordFile: "c"}}, "sink.kafka.sasl.password: and password_file"},
	} {
		c := test.c.WithDefaults()
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestAllProblemsAreReportedAtOnceAndNoPasswordAmongThem(t *testing.T) {
	_, err := New(Config{Brokers: []string{"x"}, Compression: "zip", SASL: SASL{Mechanism: "md5", Username: "u", Password: "pa55word"}}, Options{})
	if err == nil || strings.Count(err.Error(), "\n") != 2 || strings.Contains(err.Error(), "pa55word") {
		t.Errorf("%v", err)
	}
}

func TestCase21_StartRefusesWhatCanReorderOrLose(t *testing.T) {
	no := false
	for _, c := range []Config{
		{Idempotent: &no},
		{Idempotent: &no, Acks: "leader"},
		{Acks: "leader"},
		{Partitioner: "round_robin"},
		{Partitioner: "random"},
	} {
		c.Ordered = true
		if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), "sink.kafka.") {
			t.Errorf("idempotent %v, acks %q, partitioner %q: %v", c.Idempotent, c.Acks, c.Partitioner, err)
		}
	}
	for _, c := range []Config{{Idempotent: &no}, {Idempotent: &no, Acks: "leader"}, {Partitioner: "random"}} {
		if _, err := New(c, Options{}); err != nil {
			t.Errorf("without an order: %v", err)
		}
	}
}

func TestFilesThatCannotBeReadAreErrorsWithTheirKey(t *testing.T) {
	missing := t.TempDir() + "/missing"
	for key, c := range map[string]Config{
		"sink.kafka.tls.ca_file":        {TLS: TLS{Enabled: true, CAFile: missing}},
		"sink.kafka.tls.cert_file":      {TLS: TLS{Enabled: true, CertFile: missing, KeyFile: missing}},
		"sink.kafka.sasl.password_file": {SASL: SASL{Mechanism: "plain", Username: "u", PasswordFile: missing}},
	} {
		if _, err := New(c, Options{}); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
