package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row is a key in the tables of docs/configuration.md: | `key` | `default` | text |.
var row = regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| (?:`([^`]*)` )?\\| ?(.*) ?\\|$")

func TestTheDocumentationHasEveryKeyWithItsDefaultAndItsWords(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]string{}, map[string]string{}
	words := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, twice := got[m[1]]; twice {
			t.Errorf("%s is documented twice", m[1])
		}
		got[m[1]], words[m[1]] = m[2], m[3]
	}
	for _, k := range Keys() {
		want[k.Path] = k.Default
		for _, w := range strings.Fields(k.OneOf) {
			if !strings.Contains(words[k.Path], "`"+w+"`") {
				t.Errorf("the documentation of %s doesn't name %s", k.Path, w)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys and defaults, -code +docs:\n%s", diff)
	}
}
