package kafka_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/preflight"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestG9_EveryMechanismLetsTheRightPasswordInAndNamesAWrongOne(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	topic := c.UniqueTopic(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(kafkatest.AlicePassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range []kafkatest.Listener{kafkatest.SASL, kafkatest.SASLTLS} {
		for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
			t.Run(string(l)+" "+mechanism, func(t *testing.T) {
				t.Parallel()
				config := kafka.Config{Brokers: c.BrokersOn(l), SASL: kafka.SASL{Mechanism: mechanism, Username: kafkatest.Alice, PasswordFile: file}}
				if l == kafkatest.SASLTLS {
					config.TLS = kafka.TLS{Enabled: true, CAFile: c.Certificates().CA}
				}
				published(t, opened(t, c, config, kafka.Options{}), []*event.Event{sinktest.Event(topic, "k", mechanism)})

				config.SASL.PasswordFile, config.SASL.Password = "", "no-such-password"
				refused(t, opened(t, c, config, kafka.Options{}), topic, "authentication_failed", `user "alice"`, "sink.kafka.sasl")
			})
		}
	}
}

// refused demands that the sink says, by every method, that it can't use the brokers, and what to do.
func refused(t *testing.T, s *kafka.Sink, topic, reason string, words ...string) {
	t.Helper()
	check := s.Check(t.Context(), []string{topic})
	if preflight.Worst(check) != preflight.Failure || check[0].Remedy == "" {
		t.Errorf("Check: %+v", check)
	}
	for method, err := range map[string]error{"Publish": s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "k", "p")})[0], "Probe": s.Probe(t.Context())} {
		if event.ClassOf(err) != event.Unavailable || event.ReasonOf(err) != reason {
			t.Errorf("%s: %v (%v, %s)", method, err, event.ClassOf(err), event.ReasonOf(err))
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) || !strings.Contains(check[0].Detail+check[0].Remedy, w) {
				t.Errorf("neither %s (%v) nor Check (%+v) may leave out %s", method, err, check[0], w)
			}
		}
		if strings.Contains(err.Error(), "no-such-password") || strings.Contains(check[0].Detail, "no-such-password") {
			t.Errorf("%s tells the password: %v", method, err)
		}
	}
}

func TestG9_TLSIsVerifiedAndWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	topic := c.UniqueTopic(t)
	certs := c.Certificates()
	good := kafka.TLS{Enabled: true, CAFile: certs.CA}
	with := func(change func(*kafka.TLS)) kafka.TLS { changed := good; change(&changed); return changed }
	for _, test := range []struct {
		name     string
		listener kafkatest.Listener
		tls      kafka.TLS
		reason   string
		words    []string // nil: it works
	}{
		{"the right authority", kafkatest.TLS, good, "", nil},
		{"the right authority and a client certificate", kafkatest.MutualTLS, with(func(c *kafka.TLS) { c.CertFile, c.KeyFile = certs.ClientCert, certs.ClientKey }), "", nil},
		{"any certificate", kafkatest.TLS, kafka.TLS{Enabled: true, InsecureSkipVerify: true}, "", nil},
		{"a server name", kafkatest.TLS, with(func(c *kafka.TLS) { c.ServerName = "localhost" }), "", nil},
		{"another authority", kafkatest.TLS, with(func(c *kafka.TLS) { c.CAFile = certs.OtherCA }), "tls_failed", []string{"sink.kafka.tls.ca_file"}},
		{"the system's authorities", kafkatest.TLS, kafka.TLS{Enabled: true}, "tls_failed", []string{"sink.kafka.tls.ca_file"}},
		{"another server name", kafkatest.TLS, with(func(c *kafka.TLS) { c.ServerName = "kafka.example" }), "tls_failed", []string{"tls.server_name"}},
		{"no client certificate", kafkatest.MutualTLS, good, "tls_failed", []string{"sink.kafka.tls.cert_file"}},
		{"a plain listener", kafkatest.Plain, good, "brokers_unreachable", []string{"sink.kafka.tls.enabled: false"}},
		{"no tls on a listener that has it", kafkatest.TLS, kafka.TLS{}, "brokers_unreachable", []string{"sink.kafka.tls.enabled: true"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(test.listener), TLS: test.tls, Timeout: 5 * time.Second}, kafka.Options{})
			if test.words == nil {
				published(t, s, []*event.Event{sinktest.Event(topic, "k", test.name)})
				return
			}
			refused(t, s, topic, test.reason, test.words...)
		})
	}
}

// safeLog is a log that several goroutines write.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAnOutageIsLoggedOnceAndItsEndToo(t *testing.T) {
	t.Parallel()
	c, proxies := proxied(t)
	topic := c.UniqueTopic(t)
	var log safeLog
	s := opened(t, c, kafka.Config{Brokers: c.BrokersOn(kafkatest.Proxied), Timeout: 2 * time.Second}, kafka.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "p")})
	proxies[0].Cut()
	for range 3 {
		if err := s.Publish(t.Context(), []*event.Event{sinktest.Event(topic, "k", "p")})[0]; event.ClassOf(err) != event.Unavailable {
			t.Errorf("Publish = %v", err)
		}
		if err := s.Probe(t.Context()); err == nil {
			t.Error("Probe succeeds")
		}
	}
	if err := proxies[0].Restore(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	published(t, s, []*event.Event{sinktest.Event(topic, "k", "p")})
	text := log.String()
	if strings.Count(text, "kafka is unavailable") != 1 || strings.Count(text, "kafka is available again") != 1 || strings.Count(text, "\n") != 2 {
		t.Errorf("logged:\n%s", text)
	}
}
