package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// printed is all that the program has printed or served, by its source.
type printed map[string]string

func (p printed) run(t *testing.T, env []string, args ...string) {
	t.Helper()
	out, errs, _ := command(t, env, args...)
	p[strings.Join(args, " ")] += out + errs
}

func (p printed) served(t *testing.T, r *instance) {
	t.Helper()
	for _, path := range []string{"/", "/status", "/readyz", "/livez", "/metrics"} {
		_, body, err := r.get(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		p["GET "+path] += string(body)
	}
}

// In health and in every kind of trouble, what is printed and served has neither a password nor a payload.
func TestG9_NoPasswordAndNoPayloadIsPrintedOrServed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 1, nil)
	db := pgtest.Database(t)
	proxy, dsn := via(t, db)
	// The slash and the at sign must be escaped in a URL; what is wrongly cut there would show a part.
	dsn = strings.Replace(dsn, "postgres@", "postgres:hunter2%2Fhunter3%40hunter4@", 1)
	if !strings.Contains(dsn, "hunter2") {
		t.Fatalf("the password isn't in the DSN")
	}
	all := printed{}
	verbose := "\nlog: {level: debug}\nretry: {max_attempts: 2, initial: 100ms}\nalert: {webhook: {url: \"http://127.0.0.1:1/hunter5?token=hunter6\"}}"
	config, addr := configFile(t, db, settings{dsn: dsn, yaml: toKafka(c, verbose)})
	initialise(t, config)
	r := launch(t, config, addr)
	r.awaitMode("LIVE")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) VALUES
		($1, 'a', '"payload7"', '{"h": "payload8"}'), ($1, 'b', '"payload7"', '["payload8"]'), ($1 || '-unknown', 'c', '"payload7"', '{}')`, topic)
	settledRows(t, db, time.Minute)
	pgtest.Eventually(t, time.Minute, "an alert that can't be sent", func() bool { return r.metric("cdc_relay_alerts_sent_total") > 0 })
	all.served(t, r)
	for _, args := range [][]string{{"check"}, {"check", "--json"}, {"status"}, {"status", "--json"}, {"dead", "list"}, {"purge"}, {"init", "--print"}} {
		all.run(t, nil, append(args, "-c", config)...)
	}

	proxy.Cut()
	r.standsBy(time.Minute)
	pgtest.Eventually(t, time.Minute, "/readyz to fail", func() (bool, error) {
		code, _, err := r.get("/readyz")
		return code == http.StatusServiceUnavailable, err
	})
	all.served(t, r)
	for _, args := range [][]string{{"run"}, {"check"}, {"status"}, {"dead", "list"}, {"purge"}, {"init"}} {
		all.run(t, nil, append(args, "-c", config)...)
	}
	for _, broken := range []string{
		"postgres://postgres:hunter2/hunter3@hunter4@127.0.0.1:1/shop", "host=127.0.0.1 port=x password=hunter2", "host=127.0.0.1 password='hunter2 port=1",
	} {
		all.run(t, []string{"CDC_RELAY_POSTGRES_DSN=" + broken}, "run", "-c", config)
		all.run(t, []string{"CDC_RELAY_POSTGRES_DIRECT_DSN=" + broken}, "check", "-c", config)
	}
	if err := proxy.Restore(); err != nil {
		t.Fatal(err)
	}
	r.awaitMode("LIVE")
	if code := r.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all["log"] = r.log()

	// A broker that doesn't take the password, since it wants none.
	refused := launch(t, config, addr, "CDC_RELAY_SINK_KAFKA_SASL_MECHANISM=plain", "CDC_RELAY_SINK_KAFKA_SASL_USERNAME=relay",
		"CDC_RELAY_SINK_KAFKA_SASL_PASSWORD=hunter9", "CDC_RELAY_SINK_KAFKA_TIMEOUT=1s")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'a', '"payload7"')`, topic)
	pgtest.Eventually(t, time.Minute, "the sink to be down", func() (bool, error) {
		s, err := refused.status()
		return err == nil && s.Leader && !s.Sink.Up, err
	})
	all.served(t, refused)
	if code := refused.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all["log of the refused"] = refused.log()

	for from, text := range all {
		for _, secret := range []string{"hunter", "payload7", "payload8"} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows %s: …%s…", from, secret, text[max(0, i-150):min(len(text), i+150)])
			}
		}
		if text == "" {
			t.Errorf("%s: nothing was printed", from)
		}
	}
	for from, says := range map[string]string{"log": "DEAD", "dead list -c " + config: "invalid_row", "check -c " + config: "postgres", "log of the refused": "sink is not available"} {
		if !strings.Contains(all[from], says) {
			t.Errorf("%s lacks %q:\n%.500s", from, says, all[from])
		}
	}
}
