package config

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestEachWrongSettingIsNamedWithItsPlaceAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		env        []string
		want       string
	}{
		{"an unknown key", "dispatch:\n  lane: 3\n", nil,
			"relay.yaml:2: dispatch.lane is not a known key (did you mean dispatch.lanes?)"},
		{"another spelling", "dispatch: {maxInFlight: 3}\n", nil,
			"relay.yaml:1: dispatch.maxInFlight is not a known key (did you mean dispatch.max_in_flight?)"},
		{"the wrong section", "retention: 3h\n", nil,
			"relay.yaml:1: retention is not a known key (did you mean lifecycle.retention?)"},
		{"an unknown key far from all", "zebra: 3\n", nil, "relay.yaml:1: zebra is not a known key"},
		{"an unknown key of an outbox", "outboxes:\n- table: a\n  column: {}\n", nil,
			"relay.yaml:3: outboxes[0].column is not a known key (did you mean outboxes[0].columns?)"},
		{"an unknown variable", "", []string{"CDC_RELAY_DISPATCH_LANE=3"},
			"CDC_RELAY_DISPATCH_LANE: is not a known setting (did you mean CDC_RELAY_DISPATCH_LANES?)"},
		{"a word for a number", "dispatch:\n\n  lanes: many\n", nil,
			`relay.yaml:3: dispatch.lanes must be a whole number, not "many"`},
		{"a fraction for a whole number", "dispatch: {lanes: 1.5}\n", nil,
			`relay.yaml:1: dispatch.lanes must be a whole number, not "1.5"`},
		{"a bad variable", "", []string{"CDC_RELAY_DISPATCH_LANES=x"},
			`CDC_RELAY_DISPATCH_LANES: dispatch.lanes must be a whole number, not "x"`},
		{"below the bound", "dispatch: {lanes: 0}\n", nil, `relay.yaml:1: dispatch.lanes must be at least 1, not "0"`},
		{"above the bound", "retry: {jitter: 1.01}\n", nil, `relay.yaml:1: retry.jitter must be at most 1, not "1.01"`},
		{"no number at all", "retry: {jitter: .nan}\n", nil, `relay.yaml:1: retry.jitter must be a number, not ".nan"`},
		{"a duration without its unit", "retry: {initial: 10}\n", nil,
			`relay.yaml:1: retry.initial must be a duration with its unit, such as 500ms, 10s, 4h or 7d, not "10"`},
		{"a negative duration", "lifecycle: {retention: -1s}\n", nil,
			`relay.yaml:1: lifecycle.retention must be at least 0, not "-1s"`},
		{"a size with an unknown unit", "dispatch: {max_in_flight_bytes: 64M}\n", nil,
			`relay.yaml:1: dispatch.max_in_flight_bytes must be a size such as 64MiB, 1MB or 1048576, not "64M"`},
		{"a size of nothing", "dispatch: {max_in_flight_bytes: 0}\n", nil,
			`relay.yaml:1: dispatch.max_in_flight_bytes must be at least 64KiB, not "0"`},
		{"an unknown kind", "sink: {kind: kafak}\n", nil,
			`relay.yaml:1: sink.kind must be one of kafka, redis, stdout, discard (did you mean kafka?), not "kafak"`},
		{"a yes", "replication: {create: yes}\n", nil, `relay.yaml:1: replication.create must be true or false, not "yes"`},
		{"a word for a section", "dispatch: fast\n", nil, "relay.yaml:1: dispatch must be a section of keys and values"},
		{"a section for a word", "log: {level: {a: b}}\n", nil, "relay.yaml:1: log.level must be a single value"},
		{"a word for the tables", "outboxes: public.outbox\n", nil,
			"relay.yaml:1: outboxes must be a list, such as [{table: public.outbox}]"},
		{"a list for the whole", "- a\n", nil, "relay.yaml:1: must be a section of keys and values"},
		{"a key twice", "log: {level: info}\nlog: {level: debug}\n", nil, "relay.yaml:2: log is set twice"},
		{"no YAML", "log: {level: info\nretry: [", nil, "relay.yaml:1: is no valid YAML: did not find expected ',' or '}'"},
		{"two documents", "log: {level: info}\n---\nlog: {level: debug}\n", nil,
			"relay.yaml:2: holds several YAML documents; one is expected"},
		{"an alias of nothing", "retry: {initial: *pause}\n", nil, "relay.yaml: is no valid YAML: unknown anchor 'pause' referenced"},
		{"an unset variable", "replication:\n  slot: a_${SHOP}\n", nil,
			"relay.yaml:2: replication.slot needs the environment variable SHOP, which is not set"},
		{"half a variable", "log: {level: \"${SHOP\"}\n", nil,
			"relay.yaml:1: log.level holds a ${ that begins no ${NAME} (write $${ for the characters themselves)"},
		{"no tables", "outboxes: []\n", nil, "relay.yaml:1: outboxes must name at least one table"},
		{"a table without a name", "outboxes: [{topic: a}]\n", nil,
			"relay.yaml:1: outboxes[0].table is required: the name of the outbox table, such as public.outbox"},
		{"a table twice", "outboxes:\n- table: a\n- table: a\n", nil,
			"relay.yaml:3: outboxes[1].table is a, as outboxes[0].table is: each table is served once"},
		{"an unknown column", "outboxes: [{table: a, columns: {headr: x}}]\n", nil,
			"relay.yaml:1: outboxes[0].columns.headr is not a column that the relay knows (did you mean headers?); it knows " +
				strings.Join(columns, ", ")},
		{"no payload", "outboxes: [{table: a, columns: {payload: }}]\n", nil,
			"relay.yaml:1: outboxes[0].columns.payload can't be empty: without this column there is no outbox"},
		{"one word for two states", "outboxes: [{table: a, statuses: {dead: PENDING}}]\n", nil,
			`relay.yaml:1: outboxes[0].statuses must be three different words, not "PENDING", "PUBLISHED" and "PENDING"`},
		{"a slot that Postgres refuses", "replication: {slot: My-Slot}\n", nil,
			`relay.yaml:1: replication.slot must be 1 to 63 of the characters a-z, 0-9 and _, not "My-Slot"`},
		{"a long publication", "replication: {publication: " + strings.Repeat("é", 32) + "}\n", nil,
			"relay.yaml:1: replication.publication must be 1 to 63 bytes long, not 64"},
		{"fewer events than lanes", "dispatch:\n  max_in_flight: 31\n", nil,
			"relay.yaml:2: dispatch.max_in_flight must be at least dispatch.lanes (32): each lane holds an event"},
		{"a longest pause below the first", "retry: {initial: 10m}\n", nil,
			"relay.yaml:1: retry.max must be at least retry.initial (10m)"},
		{"no port", "http: {listen: localhost}\n", nil, `relay.yaml:1: http.listen must be host:port, not "localhost"`},
		{"a webhook that is no URL", "alert: {webhook: {url: hooks.example.com/secret}}\n", nil,
			"relay.yaml:1: alert.webhook.url must be a URL that begins with http:// or https://"},
		{"case 21, a producer that can reorder", "sink: {kafka: {idempotent: false}}\n", nil,
			"relay.yaml:1: sink.kafka.idempotent must be true while ordering.mode is key: without it a retry of the producer " +
				"can change the order of a key (or set ordering.mode: none)"},
		{"case 21, partitions that say nothing about the key", "sink: {kafka: {partitioner: random}}\n", nil,
			"relay.yaml:1: sink.kafka.partitioner must depend on the key while ordering.mode is key, not be random (or set " +
				"ordering.mode: none)"},
		{"a protocol that is none", "sink: {kafka: {version: latest}}\n", nil,
			`relay.yaml:1: sink.kafka.version must be auto or a version such as 2.8.0, not "latest"`},
		{"an idempotent producer without acks", "sink: {kafka: {acks: leader}}\n", nil,
			"relay.yaml:1: sink.kafka.acks must be all while sink.kafka.idempotent is true"},
		{"a broker without its port", "sink: {kafka: {brokers: [a:1, b]}}\n", nil,
			`relay.yaml:1: sink.kafka.brokers[1] must be host:port, not "b"`},
		{"no broker", "sink: {kafka: {brokers: []}}\n", nil,
			"relay.yaml:1: sink.kafka.brokers must name at least one broker as host:port"},
		{"SASL without a password", "sink: {kafka: {sasl: {mechanism: plain, username: a}}}\n", nil,
			"relay.yaml:1: sink.kafka.sasl.password is required for the mechanism plain (or password_file)"},
		{"a password without SASL", "sink: {kafka: {sasl: {password: a}}}\n", nil,
			"relay.yaml:1: sink.kafka.sasl.mechanism must be plain, scram-sha-256 or scram-sha-512 for username and password to have an effect"},
		{"TLS files without TLS", "sink: {kafka: {tls: {ca_file: a}}}\n", nil,
			"relay.yaml:1: sink.kafka.tls.enabled must be true for the other keys of sink.kafka.tls to have an effect"},
		{"half a client certificate", "sink: {kafka: {tls: {enabled: true, cert_file: a}}}\n", nil,
			"relay.yaml:1: sink.kafka.tls needs both cert_file and key_file, or neither"},
		{"a Redis URL of another kind", "sink: {kind: redis, redis: {url: http://a}}\n", nil,
			"relay.yaml:1: sink.redis.url must be a URL that begins with redis:// or rediss:// or unix://"},
		{"a Redis address without its port", "sink: {kind: redis, redis: {addrs: [a:1, b]}}\n", nil,
			`relay.yaml:1: sink.redis.addrs[1] must be host:port, not "b"`},
		{"two ways to trim", "sink: {kind: redis, redis: {max_len: 1, max_age: 1h}}\n", nil,
			"relay.yaml:1: sink.redis.max_age and sink.redis.max_len are both set: keep one of them"},
		{"a secret file that isn't there", "sink: {kafka: {sasl: {mechanism: plain, username: a, password_file: /nowhere/pw}}}\n", nil,
			"relay.yaml:1: sink.kafka.sasl.password_file names /nowhere/pw, which can't be read: no such file or directory"},
		{"a secret twice", "alert: {webhook: {url: 'https://a', url_file: /nowhere/url}}\n", nil,
			"relay.yaml:1: alert.webhook.url and alert.webhook.url_file are both set: keep one of them"},
		{"a direct DSN that is none", "postgres: {direct_dsn: 'host=h port=abc'}\n", nil,
			"relay.yaml:1: postgres.direct_dsn is no connection string as libpq takes it: invalid port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, got := load(t, c.text, append(c.env, "CDC_RELAY_POSTGRES_DSN="+dsn)...)
			if diff := cmp.Diff([]string{c.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAMissingDSNSaysWhereToSetIt(t *testing.T) {
	t.Parallel()
	_, got := load(t, "")
	want := []string{"postgres.dsn is required: set it in the file or CDC_RELAY_POSTGRES_DSN"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatNeedsNoDatabaseNeedsNoDSN(t *testing.T) {
	t.Parallel()
	if _, err := Load("", nil, WithoutDSN()); err != nil {
		t.Error(err)
	}
}

func TestAllProblemsAreReportedAtOnceInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	_, got := load(t, `retry:
  initial: 10m
dispatch:
  lanes: many
  speed: 3
log:
  level: ${LEVEL}
`, "CDC_RELAY_ORDERING_MODE=fifo")
	want := []string{
		"relay.yaml:1: retry.max must be at least retry.initial (10m)",
		`relay.yaml:4: dispatch.lanes must be a whole number, not "many"`,
		"relay.yaml:5: dispatch.speed is not a known key",
		"relay.yaml:7: log.level needs the environment variable LEVEL, which is not set",
		`CDC_RELAY_ORDERING_MODE: ordering.mode must be one of key, none, not "fifo"`,
		"postgres.dsn is required: set it in the file or CDC_RELAY_POSTGRES_DSN",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSecretsAreReadFromTheirFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, problems := load(t, `
postgres: {dsn: "", dsn_file: `+file("dsn", dsn+"\n")+`, direct_dsn_file: `+file("direct", "host=d")+`}
sink:
  kafka: {sasl: {mechanism: plain, username: u, password_file: `+file("password", " p${w}$$ \r\n")+`}}
`, "CDC_RELAY_ALERT_WEBHOOK_URL_FILE="+file("url", "https://h/p"))
	if problems != nil {
		t.Fatal(problems)
	}
	got := []string{c.Postgres.DSN, c.Postgres.DirectDSN, c.Sink.Kafka.SASL.Password, c.Alert.Webhook.URL}
	if diff := cmp.Diff([]string{dsn, "host=d", " p${w}$$", "https://h/p"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	_, problems = load(t, "", "CDC_RELAY_POSTGRES_DSN_FILE="+file("empty", "\n"))
	want := []string{"CDC_RELAY_POSTGRES_DSN_FILE: postgres.dsn_file names " + filepath.Join(dir, "empty") + ", which is empty"}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestG9NoProblemAndNoPrintShowsASecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, dsn := range []string{
		"postgres://u:hunter2@h/db", "postgres://u:hun@ter2/hunter2@h/db", "postgres://u:hunter2@h:99999/db",
		"postgres://u:hunter2%zz@h/db", "postgres://h/db?user=u&password=hunter2&sslpassword=hunter2",
		"host=h password=hunter2", "host=h password = 'a hunter2'", "host=h password='a hunter2", "host=h password=a&hunter2",
		`host=h password=a\ hunter2`, "postgres://u:hunter2@a:1,b:2/db?target_session_attrs=nonsense",
	} {
		c, problems := load(t, "", "CDC_RELAY_POSTGRES_DSN="+dsn, "CDC_RELAY_POSTGRES_DIRECT_DSN="+dsn)
		if shown := strings.Join(problems, "\n"); strings.Contains(shown, secret) {
			t.Errorf("%s: the problem shows the password: %s", dsn, shown)
		}
		if c == nil {
			c = &Config{Postgres: Postgres{DSN: dsn}}
		}
		if shown := c.String(); strings.Contains(shown, secret) {
			t.Errorf("%s: the print shows the password: %s", dsn, shown)
		}
	}
	c := good(t, "", "CDC_RELAY_SINK_REDIS_URL=redis://:hunter2@h/0", "CDC_RELAY_ALERT_WEBHOOK_URL=https://u:hunter2@h/hunter2?hunter2",
		"CDC_RELAY_WAKE_REDIS_URL=rediss://u:hunter2@h", "CDC_RELAY_SINK_KAFKA_SASL_MECHANISM=plain",
		"CDC_RELAY_SINK_KAFKA_SASL_USERNAME=u", "CDC_RELAY_SINK_KAFKA_SASL_PASSWORD=hunter2")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "configuration", slog.Any("config", c))
	slog.New(slog.NewJSONHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "configuration", slog.Any("config", c))
	if shown := c.String() + log.String(); strings.Contains(shown, secret) {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	if c.Sink.Kafka.SASL.Password != secret {
		t.Error("redacting changed the configuration itself")
	}
	// What is no YAML may have a password on the wrong line.
	_, problems := load(t, "postgres:\n  dsn: \"hunter2\nsink: {\n")
	if shown := strings.Join(problems, "\n"); strings.Contains(shown, secret) {
		t.Errorf("the syntax error shows the text around it: %s", shown)
	}
}

func TestEverySecretKeyIsMarkedAndCanComeFromAFile(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	walkSchema(reflect.TypeFor[Config](), "", func(path string, _ field) { files[path] = true })
	walkSchema(reflect.TypeFor[Config](), "", func(path string, f field) {
		leaf := path[strings.LastIndexByte(path, '.')+1:]
		looks := strings.Contains(leaf, "dsn") || strings.Contains(leaf, "password") || strings.Contains(leaf, "url")
		if strings.HasSuffix(leaf, "_file") || !looks && !f.isSecret() {
			return
		}
		if !f.isSecret() || !files[path+"_file"] {
			t.Errorf("%s: secret tag %q, key %s_file exists: %v", path, f.tag.Get("secret"), path, files[path+"_file"])
		}
	})
}

func TestAFileThatIsNotThereIsAProblemWithItsName(t *testing.T) {
	t.Parallel()
	_, err := Load("/nowhere/relay.yaml", nil)
	if want := "configuration: /nowhere/relay.yaml: can't be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestTheColumnsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	want := []string{}
	for _, c := range []table.Column{
		table.ID, table.MessageID, table.Topic, table.Key, table.Payload, table.Headers, table.EventType, table.Status,
		table.Attempts, table.NextAttemptAt, table.LastError, table.CreatedAt, table.PublishedAt,
	} {
		want = append(want, string(c))
	}
	if diff := cmp.Diff(want, columns); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSizesAndDurationsAreReadAndPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"64MiB": 64 << 20, "1MB": 1e6, "1 kb": 1000, "0": 0, "1048577": 1048577, "2GiB": 2 << 30, "3b": 3, "-1": -1} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) is %d, %v; want %d", text, got, err, want)
		}
		if again, err := ParseBytes(got.String()); err != nil || again != got {
			t.Errorf("%q is printed as %q, which is %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "x", "64M", "1e400", "NaN", "9999999999GiB", "MiB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("ParseBytes(%q) is %d, want an error", text, got)
		}
	}
	for text, want := range map[string]string{"0": "0", "24h": "24h", "1h30m": "1h30m", "90s": "1m30s", "7d": "168h", "60s": "1m", "1500ms": "1.5s"} {
		d, err := ParseDuration(text)
		if got := formatDuration(d); err != nil || got != want {
			t.Errorf("%q is printed as %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAnURLThatMeansTLSNeedsNoOtherSwitchForIt(t *testing.T) {
	t.Parallel()
	good(t, "sink: {kind: redis, redis: {url: 'rediss://h', tls: {ca_file: a}}}\n")
}
