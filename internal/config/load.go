package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Option changes what Load asks for.
type Option func(*loader)

// WithoutDSN is for what needs no database: postgres.dsn may be missing.
func WithoutDSN() Option { return func(l *loader) { l.dsnOptional = true } }

// Load reads the file at path (none when path is empty) and the CDC_RELAY_* variables of env, which is in the form of
// os.Environ. Its error is an *Error with everything that is wrong.
func Load(path string, env []string, options ...Option) (*Config, error) {
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, &Error{Problems: []Problem{{Where: path, Message: unreadable(err)}}}
		}
	}
	return parse(path, text, env, options...)
}

// parse is Load without the reading of the file.
func parse(name string, text []byte, env []string, options ...Option) (*Config, error) {
	l := &loader{env: environ(env), origins: map[string]origin{}}
	for _, o := range options {
		o(l)
	}
	c := &Config{}
	root := reflect.ValueOf(c).Elem()
	l.read(c, name, text, true)
	l.environment(root)
	l.secretFiles(root, "")
	l.validate(c)
	for i := range c.Outboxes {
		if o := &c.Outboxes[i]; o.Topic == "" {
			o.Topic = topics[o.Preset]
		}
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// read sets the defaults and, above them, what the file says.
func (l *loader) read(c *Config, name string, text []byte, expand bool) {
	root, at := reflect.ValueOf(c).Elem(), origin{file: name}
	l.defaults(root)
	clear(l.origins)
	if node := l.document(text, at); node != nil {
		s := scope{origin: at, expand: expand}
		l.section(root, node, s.at("", node))
	}
}

// topics are the templates of the presets.
var topics = map[string]string{"default": "{{topic}}", "debezium": "outbox.event.{{aggregatetype}}"}

// loader is the state of one Load.
type loader struct {
	env      map[string]string
	problems []problem

	dsnOptional bool
	origins     map[string]origin // where each key was set
}

// scope is what is the same for everything below a node.
type scope struct {
	path   string
	origin origin
	expand bool // ${NAME} in strings
	depth  int
}

// maxDepth is far above what the schema needs; it ends aliases that contain themselves.
const maxDepth = 32

// at is the scope of a node under a key.
func (s scope) at(path string, node *yaml.Node) scope {
	s.path = path
	s.depth++
	if s.origin.env == "" {
		s.origin.line = node.Line
	}
	return s
}

// document parses a text of one YAML document. It returns nil when the text is empty or no YAML.
func (l *loader) document(text []byte, at origin) (node *yaml.Node) {
	// The parser isn't ours and sees whatever stands in the file.
	defer func() {
		if recover() != nil {
			node = nil
			l.fail("", at, "can't be read as YAML")
		}
	}()
	var documents [2]yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for i := range documents {
		if err := decoder.Decode(&documents[i]); err != nil && !errors.Is(err, io.EOF) {
			l.syntax(err, at)
			return nil
		}
	}
	if more := documents[1]; more.Kind != 0 {
		at.line = more.Line
		l.fail("", at, "holds several YAML documents; one is expected")
	}
	if len(documents[0].Content) == 0 {
		return nil
	}
	return documents[0].Content[0]
}

// syntaxLine is where the parser says what is wrong.
var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// syntax notes that a text is no YAML. The parser's messages name anchors and characters, and no other text of the file.
func (l *loader) syntax(err error, at origin) {
	message := err.Error()
	if m := syntaxLine.FindStringSubmatch(message); m != nil {
		message = m[2]
		if line, err := strconv.Atoi(m[1]); err == nil && at.env == "" {
			at.line = line
		}
	}
	l.fail("", at, "is no valid YAML: %s", message)
}

// unreadable says why a file can't be read, without its name.
func unreadable(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Sprintf("can't be read: %v", err)
}
