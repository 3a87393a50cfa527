package config

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzLoad holds that no text makes the loader panic, hang or return anything but a configuration or an *Error, and that
// what was accepted means the same when it is printed and read again.
func FuzzLoad(f *testing.F) {
	golden, err := os.ReadFile("testdata/default.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(golden), "10s")
	for _, text := range []string{
		"", "a", "- a", "retry: {initial: &a 3s, max: *a}", "a: &a [*a]", "outboxes: &a [*a]", "x: ${", "log: {level: \"${HOME}$$\"}",
		"? [a]\n: b", "<<: {log: }", "outboxes: [{table: a, columns: {key: }}]", "---\n...\n---\n", "log: !!binary aGk=",
	} {
		f.Add(text, "[{table: a}]")
	}
	f.Fuzz(func(t *testing.T, text, variable string) {
		env := []string{"CDC_RELAY_POSTGRES_DSN=host=a", "HOME=/", "CDC_RELAY_OUTBOXES=" + variable, "CDC_RELAY_RETRY_MAX=" + variable}
		for _, env := range [][]string{env, env[:2]} {
			c, err := parse("relay.yaml", []byte(text), env)
			var e *Error
			if err != nil && (!errors.As(err, &e) || len(e.Problems) == 0) {
				t.Fatalf("the error is %T: %v", err, err)
			}
			if err == nil {
				printed(t, c)
			}
		}
	})
}

// printed reads a printed configuration again. Secrets are masked in it, and $ isn't written twice.
func printed(t *testing.T, c *Config) {
	want := c.Redacted()
	l := &loader{origins: map[string]origin{}}
	got := &Config{}
	l.read(got, "", []byte(c.String()), false)
	if err := l.err(); err != nil {
		t.Fatalf("what was printed can't be read: %v\n%s", err, c)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
