package sink_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func FuzzAJSONStringIsReadBackAsItWas(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f \"\\/", "\b\f\n\r\t", "grüße 世界 🎈\u2028<&>", "\xff a\xc3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		b := sink.AppendJSONString([]byte("x"), s)
		if err := json.Unmarshal(b[1:], &got); b[0] != 'x' || err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		want := s
		if !utf8.ValidString(s) {
			want = string([]rune(s)) // each bad byte becomes U+FFFD
		}
		if got != want {
			t.Errorf("%q became %q", s, got)
		}
	})
}
