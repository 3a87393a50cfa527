package config

import "go.yaml.in/yaml/v3"

// pair is one key of a mapping with its value.
type pair struct{ key, value *yaml.Node }

// pairs takes a mapping apart; ok is false when the node is none.
func (l *loader) pairs(node *yaml.Node, s scope) (pairs []pair, ok bool) {
	if node.Kind != yaml.MappingNode {
		if !isNull(node) {
			l.fail(s.path, s.origin, "must be a section of keys and values")
		}
		return nil, false
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		p := pair{key: node.Content[i], value: node.Content[i+1]}
		name := p.key.Value
		switch at := s.at(join(s.path, name), p.key); {
		case p.key.Kind != yaml.ScalarNode || p.key.ShortTag() == "!!merge":
			l.fail(s.path, at.origin, "can only have plain words as keys")
		case seen[name]:
			l.fail(at.path, at.origin, "is set twice")
		default:
			seen[name] = true
			pairs = append(pairs, p)
		}
	}
	return pairs, true
}

// resolve follows an alias to what it stands for. An alias inside of what it stands for would never end.
func (l *loader) resolve(node *yaml.Node, s scope) (*yaml.Node, bool) {
	if s.depth > maxDepth {
		l.fail(s.path, s.origin, "is nested too deep")
		return nil, false
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node, true
}

// text is the value of a scalar as it was written, with ${NAME} replaced.
func (l *loader) text(node *yaml.Node, s scope) (string, bool) {
	if node.Kind != yaml.ScalarNode {
		l.fail(s.path, s.origin, "must be a single value")
		return "", false
	}
	if !s.expand {
		return node.Value, true
	}
	return l.expanded(node.Value, s)
}

// isNull says whether a key has no value.
func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }
