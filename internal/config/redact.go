package config

import (
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// mask stands where a secret was.
const mask = "xxxxx"

// Redacted is a copy without secrets, for printing.
func (c *Config) Redacted() *Config {
	redacted := *c
	redact(reflect.ValueOf(&redacted).Elem())
	return &redacted
}

// String is the redacted configuration as YAML, so that no log line and no message can show a secret.
func (c *Config) String() string {
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node(reflect.ValueOf(*c.Redacted()))), encoder.Close()); err != nil {
		return "configuration: " + err.Error()
	}
	return text.String()
}

// LogValue is for log/slog, whose JSON would show every field.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// node renders a value in the spelling of the file.
func node(v reflect.Value) *yaml.Node {
	n := &yaml.Node{}
	switch value := v.Interface().(type) {
	case time.Duration:
		*n = yaml.Node{Kind: yaml.ScalarNode, Value: formatDuration(value)}
	case Bytes:
		*n = yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
	case []Outbox:
		n.Kind = yaml.SequenceNode
		for i := range value {
			n.Content = append(n.Content, node(v.Index(i)))
		}
	default:
		if v.Kind() != reflect.Struct {
			_ = n.Encode(value) // of words and numbers: can't fail
			break
		}
		n.Kind = yaml.MappingNode
		for _, f := range fieldsOf(v.Type()) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}, node(v.Field(f.index)))
		}
	}
	return n
}

// redact masks the secrets of a section. Those of lists don't exist.
func redact(section reflect.Value) {
	t := section.Type()
	for i := range t.NumField() {
		f := section.Field(i)
		switch secret := t.Field(i).Tag.Get("secret"); {
		case f.Kind() == reflect.Struct:
			redact(f)
		case secret == "" || f.String() == "":
		case secret == "dsn" || secret == "url":
			f.SetString(redactDSN(f.String()))
		case secret == "host":
			f.SetString(redactPath(f.String()))
		default:
			f.SetString(mask)
		}
	}
}

var (
	// userinfo goes up to the last @: a password that isn't escaped may hold one.
	userinfo = regexp.MustCompile(`(?s)^([a-z]+://[^:@]*:).*@`)
	// passwords are in a query or among keywords; sslpassword too. A quote that isn't closed goes to the end.
	passwords = regexp.MustCompile(`(?is)(password\s*=\s*)('(?:\\.|[^'\\])*(?:'|$)|(?:\\.|[^\s\\])+)`)
)

// redactDSN masks the passwords in a URL or in a keyword/value string. In doubt it masks too much.
func redactDSN(dsn string) string {
	dsn = userinfo.ReplaceAllString(dsn, "${1}"+mask+"@")
	return passwords.ReplaceAllString(dsn, "${1}"+mask)
}

// redactPath leaves only the scheme and the host of a URL: a webhook's path or query often is its secret.
func redactPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return mask
	}
	return u.Scheme + "://" + u.Host + "/" + mask
}
