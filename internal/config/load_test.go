package config

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const dsn = "postgres://relay@db:5432/shop"

// load reads a text as if it were the file relay.yaml.
func load(t *testing.T, text string, env ...string) (*Config, []string) {
	t.Helper()
	c, err := parse("relay.yaml", []byte(text), env)
	if err == nil {
		return c, nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is a %T, want *Error: %v", err, err)
	}
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return nil, lines
}

// good is load of what must be good, with a DSN.
func good(t *testing.T, text string, env ...string) *Config {
	t.Helper()
	c, problems := load(t, text, append(env, "CDC_RELAY_POSTGRES_DSN="+dsn)...)
	if problems != nil {
		t.Fatalf("unexpected problems:\n%s", strings.Join(problems, "\n"))
	}
	return c
}

func TestTheDefaultConfigurationIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	got := good(t, "").String()
	golden := filepath.Join("testdata", "default.yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("defaults changed (run with -update when that is wanted; -want +got):\n%s", diff)
	}
}

func TestThePrintedDefaultsAreAConfigurationThatMeansTheSame(t *testing.T) {
	t.Parallel()
	want := good(t, "")
	got, problems := load(t, want.String())
	if problems != nil {
		t.Fatal(problems)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheFileSetsKeysOfEveryKind(t *testing.T) {
	t.Parallel()
	c := good(t, `
# comments are fine
postgres: {max_conns: 8}
outboxes:
  - table: '"Shop".outbox'
    columns: {key: aggregate, headers: , event_type: "type"}
    statuses: {pending: NEW}
    topic: "shop.{{topic}}"
    order_by: created_at
  - {table: other, preset: debezium}
replication:
  create: False
dispatch:
  max_in_flight_bytes: 1.5GiB
retry: {jitter: 0, max: 2d, multiplier: 1.5}
lifecycle:
  retention: 0
sink:
  kafka:
    brokers:
      - a:9092
      - b:9092
`)
	if got := c.Postgres.MaxConns; got != 8 {
		t.Errorf("max_conns is %d", got)
	}
	want := []Outbox{{
		Table: `"Shop".outbox`, Preset: "default", Topic: "shop.{{topic}}", OrderBy: "created_at",
		Columns:  map[string]string{"key": "aggregate", "headers": "", "event_type": "type"},
		Statuses: Statuses{Pending: "NEW", Published: "PUBLISHED", Dead: "DEAD"},
	}, {
		Table: "other", Preset: "debezium", Topic: "outbox.event.{{aggregatetype}}", Columns: map[string]string{},
		Statuses: Statuses{Pending: "PENDING", Published: "PUBLISHED", Dead: "DEAD"},
	}}
	if diff := cmp.Diff(want, c.Outboxes); diff != "" {
		t.Errorf("outboxes, -want +got:\n%s", diff)
	}
	if c.Replication.Create {
		t.Error("replication.create is still true")
	}
	if got := c.Dispatch.MaxInFlightBytes; got != 3<<29 {
		t.Errorf("1.5GiB is %d bytes", got)
	}
	if c.Retry.Jitter != 0 || c.Retry.Max != 48*time.Hour || c.Retry.Multiplier != 1.5 || c.Lifecycle.Retention != 0 {
		t.Errorf("retry is %+v, retention %s", c.Retry, c.Lifecycle.Retention)
	}
	if got := c.Sink.Kafka.Brokers; !slices.Equal(got, []string{"a:9092", "b:9092"}) {
		t.Errorf("brokers are %q", got)
	}
}

func TestAnchorsAndAliasesAreFollowed(t *testing.T) {
	t.Parallel()
	c := good(t, "retry: {initial: &pause 3s, max: *pause}\n")
	if c.Retry.Initial != 3*time.Second || c.Retry.Max != 3*time.Second {
		t.Errorf("retry is %+v", c.Retry)
	}
}

func TestAnEmptyFileAndKeysWithoutValuesKeepTheDefaults(t *testing.T) {
	t.Parallel()
	want := good(t, "")
	for _, text := range []string{"# nothing\n", "---\n", "dispatch:\nretry: {initial: }\noutboxes: ~\n"} {
		if diff := cmp.Diff(want, good(t, text)); diff != "" {
			t.Errorf("%q, -want +got:\n%s", text, diff)
		}
	}
}

func TestEveryKeyCanBeSetByItsVariable(t *testing.T) {
	t.Parallel()
	// A value that is valid and isn't the default, by type; anything that needs more is listed by name.
	values := map[string]string{
		"CDC_RELAY_OUTBOXES": "[{table: a.b}]", "CDC_RELAY_SINK_KAFKA_BROKERS": "a:1,b:2", "CDC_RELAY_HTTP_LISTEN": ":9999",
		"CDC_RELAY_POSTGRES_DSN": "host=b", "CDC_RELAY_POSTGRES_DIRECT_DSN": "host=c",
		"CDC_RELAY_SINK_REDIS_URL": "rediss://x", "CDC_RELAY_WAKE_REDIS_URL": "redis://y",
		"CDC_RELAY_ALERT_WEBHOOK_URL": "https://z", "CDC_RELAY_RETRY_JITTER": "0.5",
	}
	for _, k := range Keys() {
		if k.Env == "" || strings.HasSuffix(k.Env, "_FILE") {
			continue
		}
		t.Run(k.Env, func(t *testing.T) {
			t.Parallel()
			value := values[k.Env]
			if value == "" {
				value = otherThan(k)
			}
			env := []string{k.Env + "=" + value}
			// Needed beside some keys.
			env = append(env, "CDC_RELAY_POSTGRES_DSN="+dsn, "CDC_RELAY_SINK_KIND=stdout")
			got, err := parse("", nil, env)
			if err != nil {
				t.Fatal(err)
			}
			base, err := parse("", nil, env[1:])
			if err != nil {
				t.Fatal(err)
			}
			if cmp.Equal(base, got) {
				t.Errorf("%s=%s changed nothing", k.Env, value)
			}
		})
	}
}

// otherThan is a valid value that isn't the default.
func otherThan(k Key) string {
	if k.OneOf != "" {
		words := strings.Fields(k.OneOf)
		return words[(slices.Index(words, k.Default)+1)%len(words)]
	}
	switch k.Default {
	case "true":
		return "false"
	case "false":
		return "true"
	case "0", "24h", "1s", "20ms", "4h", "5m", "1m", "10s", "30s", "5s":
		if k.Path == "sink.redis.max_len" || k.Path == "sink.redis.wait_replicas" {
			return "7"
		}
		return "7s"
	case "64MiB", "1MiB", "16MiB":
		return "2MiB"
	case "", "cdc_relay", "outbox", "cdc-relay":
		return "something"
	}
	return "64" // of a number
}

func TestVariablesWinOverTheFileAndTakeListsAndMapsAsText(t *testing.T) {
	t.Parallel()
	c := good(t, "dispatch: {lanes: 8}\nsink: {kafka: {brokers: [x:1]}}\n",
		"CDC_RELAY_DISPATCH_LANES=16",
		`CDC_RELAY_OUTBOXES=[{"table":"a.b","columns":{"key":"k"}}]`,
		"CDC_RELAY_SINK_KAFKA_BROKERS=a:9092, b:9092",
		"CDC_RELAY_RETRY={initial: 2s, max: 3s}", "CDC_RELAY_RETRY_MAX=4s",
		"CDC_RELAY_LOG_LEVEL=", "HOME=/root")
	if c.Dispatch.Lanes != 16 || c.Retry.Initial != 2*time.Second || c.Retry.Max != 4*time.Second || c.Log.Level != "info" {
		t.Errorf("lanes %d, retry %+v, level %q", c.Dispatch.Lanes, c.Retry, c.Log.Level)
	}
	if len(c.Outboxes) != 1 || c.Outboxes[0].Table != "a.b" || !maps.Equal(c.Outboxes[0].Columns, map[string]string{"key": "k"}) {
		t.Errorf("outboxes are %+v", c.Outboxes)
	}
	if !slices.Equal(c.Sink.Kafka.Brokers, []string{"a:9092", "b:9092"}) {
		t.Errorf("brokers are %q", c.Sink.Kafka.Brokers)
	}
}

func TestTheVariablesThatKubernetesSetsForAServiceAreNoSettings(t *testing.T) {
	t.Parallel()
	foreignNames := []string{
		"CDC_RELAY_SERVICE_HOST", "CDC_RELAY_SERVICE_PORT", "CDC_RELAY_SERVICE_PORT_HTTP", "CDC_RELAY_PORT",
		"CDC_RELAY_PORT_9180_TCP", "CDC_RELAY_PORT_9180_TCP_ADDR", "CDC_RELAY_ADMIN_SERVICE_HOST",
		"CDC_RELAY_ADMIN_PORT_9180_TCP_PROTO", "CDC_RELAY_TEST_SKIP", "CDC_RELAY_CONFIG",
	}
	env := make([]string, len(foreignNames))
	for i, n := range foreignNames {
		env[i] = n + "=tcp://10.0.0.1:9180"
	}
	good(t, "", env...)
	for _, k := range Keys() {
		if foreign.MatchString(k.Env) {
			t.Errorf("%s is a setting, and yet it would be ignored", k.Env)
		}
	}
}

func TestEveryKeyHasAVariableOfItsOwnAndBoundsThatCanBeRead(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, k := range Keys() {
		if other, taken := seen[k.Env]; k.Env != "" && taken {
			t.Errorf("%s and %s share %s", k.Path, other, k.Env)
		}
		seen[k.Env] = k.Path
	}
	good(t, "") // panics on bounds that can't be read of fields with a default
}

func TestVariablesAreExpandedInStringsOfTheFileOnly(t *testing.T) {
	t.Parallel()
	c := good(t, `
replication: {slot: "${SLOT}_1", publication: pub$}
dispatch: {lanes: "${LANES}"}
wake: {channel: "a$${SLOT}$$"}
sink: {kafka: {brokers: "${BROKERS}", client_id: "${SLOT}"}}
`, "SLOT=shop", "LANES=7", "BROKERS=a:1,b:2", "CDC_RELAY_HTTP_LISTEN=:1", "CDC_RELAY_SINK_KAFKA_SASL={mechanism: plain, username: u, password: 'a${SLOT}$$'}")
	if c.Replication.Slot != "shop_1" || c.Replication.Publication != "pub$" || c.Dispatch.Lanes != 7 ||
		c.Wake.Channel != "a${SLOT}$" || c.Sink.Kafka.ClientID != "shop" || c.Sink.Kafka.SASL.Password != "a${SLOT}$$" {
		t.Errorf("%+v, lanes %d, %+v, %+v", c.Replication, c.Dispatch.Lanes, c.Wake, c.Sink.Kafka)
	}
	if !slices.Equal(c.Sink.Kafka.Brokers, []string{"a:1", "b:2"}) {
		t.Errorf("brokers are %q", c.Sink.Kafka.Brokers)
	}
}
