package redisstream

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheDefaultsAreSafeAndComplete(t *testing.T) {
	c := Config{}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	o, err := c.clientOptions()
	if err != nil {
		t.Fatal(err)
	}
	if o.MaxRetries != -1 || o.MaxRedirects != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.PipelinePoolSize != -1 {
		t.Errorf("go-redis may send again by itself: %+v", o)
	}
	if o.PoolSize <= c.Connections || o.ReadTimeout != 5*time.Second || o.TLSConfig != nil || o.DB != 0 || !reflect.DeepEqual(o.Addrs, []string{"localhost:6379"}) {
		t.Errorf("%+v", o)
	}
	c.WaitReplicas = 1
	if o, _ := c.clientOptions(); o.ReadTimeout != 6*time.Second {
		t.Errorf("WAIT runs into the timeout of its answer: %v", o.ReadTimeout)
	}
}

func TestWithDefaultsLeavesTheOriginalAlone(t *testing.T) {
	var c Config
	_ = c.WithDefaults()
	if !reflect.DeepEqual(c, Config{}) {
		t.Errorf("%+v", c)
	}
}

func TestAnURLSaysWhereTheServersAre(t *testing.T) {
	for _, test := range []struct {
		c    Config
		want place
	}{
		{Config{}, place{addrs: []string{"localhost:6379"}}},
		{Config{URL: "redis://"}, place{addrs: []string{"localhost:6379"}}},
		{Config{URL: "redis://h"}, place{addrs: []string{"h:6379"}}},
		{Config{URL: "rediss://u:p%40ss@h:1/2"}, place{addrs: []string{"h:1"}, username: "u", password: "p@ss", database: 2, tls: true}},
		{Config{URL: "redis://[::1]:7/"}, place{addrs: []string{"[::1]:7"}}},
		{Config{URL: "redis://h", TLS: TLS{Enabled: true}}, place{addrs: []string{"h:6379"}, tls: true}},
		{Config{URL: "unix://u:p@/run/redis.sock?db=4"}, place{addrs: []string{"/run/redis.sock"}, username: "u", password: "p", database: 4}},
		{Config{URL: "redis://:p@ignored/1", Addrs: []string{"s:1", "s:2"}, MasterName: "m"}, place{addrs: []string{"s:1", "s:2"}, master: "m", password: "p", database: 1}},
		{Config{URL: "redis://h/1?master_name=m&addr=s:2"}, place{addrs: []string{"h:26379", "s:2"}, master: "m", database: 1}},
		{Config{URL: "redis://h", MasterName: "m"}, place{addrs: []string{"h:6379"}, master: "m"}},
		{Config{URL: "redis://:p@h", Addrs: []string{"a:1"}}, place{addrs: []string{"a:1"}, cluster: true, password: "p"}},
		{Config{URL: "redis://h?addr=b:1"}, place{addrs: []string{"h:6379", "b:1"}, cluster: true}},
	} {
		c := test.c.WithDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", test.c, err)
		}
		got := c.place(func(key, format string, _ ...any) { t.Errorf("%s: %s", key, format) })
		if d := cmp.Diff(test.want, got, cmp.AllowUnexported(place{})); d != "" {
			t.Errorf("%+v: %s", test.c, d)
		}
		if strings.Contains(got.String(), "p@ss") {
			t.Errorf("%s has the password", got.String())
		}
	}
}

func TestEachBadSettingIsAnErrorWithItsKey(t *testing.T) {
	for _, test := range []struct {
		name string
		c    Config
		want string // the beginning of the only line
	}{
		{"no URL", Config{URL: "redis://a:p%zz@h"}, "sink.redis.url: is no URL"},
		{"scheme", Config{URL: "http://h"}, "sink.redis.url: must begin with redis://"},
		{"database", Config{URL: "redis://h/orders"}, "sink.redis.url: must end with the number of a database"},
		{"negative database", Config{URL: "redis://h/-1"}, "sink.redis.url: must end with the number of a database"},
		{"parameter", Config{URL: "redis://h/0?max_retries=3"}, `sink.redis.url: has the parameter "max_retries"`},
		{"socket", Config{URL: "unix://host/path"}, "sink.redis.url: must be unix:///path/to/socket"},
		{"address", Config{Addrs: []string{"a:1", "b"}}, `sink.redis.addrs[1]: "b" must be host:port`},
		{"address in the URL", Config{URL: "redis://h?addr=b"}, `sink.redis.addrs[1]: "b" must be host:port`},
		{"database of a cluster", Config{URL: "redis://h/1", Addrs: []string{"a:1"}}, "sink.redis.url: must name database 0"},
		{"two masters", Config{URL: "redis://h?master_name=a", MasterName: "b"}, "sink.redis.master_name: and the URL's"},
		{"sentinel's password", Config{SentinelPassword: "x"}, "sink.redis.master_name: must be set"},
		{"negative length", Config{MaxLen: -1}, "sink.redis.max_len: must not be negative"},
		{"negative age", Config{MaxAge: -1}, "sink.redis.max_age: must not be negative"},
		{"length and age", Config{MaxLen: 1, MaxAge: 1}, "sink.redis.max_age: and max_len are both set"},
		{"exact what", Config{TrimExact: true}, "sink.redis.trim_exact: has an effect"},
		{"replicas", Config{WaitReplicas: -1}, "sink.redis.wait_replicas: must not be negative"},
		{"wait", Config{WaitTimeout: time.Microsecond}, "sink.redis.wait_timeout: must be at least 1ms"},
		{"size", Config{MaxMessageBytes: 1}, "sink.redis.max_message_bytes: must be from 1024"},
		{"timeout", Config{Timeout: time.Millisecond}, "sink.redis.timeout: must be at least 100ms"},
		{"connections", Config{Connections: -1}, "sink.redis.connections: must not be negative"},
		{"half a certificate", Config{TLS: TLS{Enabled: true, CertFile: "x"}}, "sink.redis.tls: cert_file and key_file"},
		{"tls that is off", Config{TLS: TLS{CAFile: "x"}}, "sink.redis.tls.enabled: must be true"},
	} {
		c := test.c.WithDefaults()
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestAllProblemsAreReportedAtOnceAndNoPasswordAmongThem(t *testing.T) {
	_, err := New(Config{URL: "redis://u:pa55word@h/x?y=pa55word2", Timeout: 1, SentinelPassword: "pa55word3"}, Options{})
	if err == nil || strings.Count(err.Error(), "\n") != 3 || strings.Contains(err.Error(), "pa55word") {
		t.Errorf("%v", err)
	}
}

func TestFilesThatCannotBeReadAreErrorsWithTheirKey(t *testing.T) {
	missing := t.TempDir() + "/missing"
	for key, tls := range map[string]TLS{
		"sink.redis.tls.ca_file":   {Enabled: true, CAFile: missing},
		"sink.redis.tls.cert_file": {Enabled: true, CertFile: missing, KeyFile: missing},
	} {
		if _, err := New(Config{TLS: tls}, Options{}); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
