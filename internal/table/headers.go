package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

var (
	errNoObject = errors.New("headers are no JSON object")
	errBadJSON  = errors.New("headers are not valid JSON")
)

// headers reads a JSON object into dst, in the order in which it is written. A string becomes its characters, a number,
// true or false its JSON text, an object or array its JSON text without white space; null leaves the header out. The
// characters are appended to buf, which must have room for len(text) more bytes, and the headers point into it.
//
// Every error is one of what somebody has written into the row.
func headers(dst []event.Header, buf, text []byte) ([]event.Header, []byte, error) {
	rest := skipSpace(text)
	if len(rest) == 0 || rest[0] != '{' {
		return dst, buf, errNoObject
	}
	rest = skipSpace(rest[1:])
	for first := true; ; first = false {
		if len(rest) > 0 && rest[0] == '}' { // not after a comma: header has refused it there
			break
		}
		if !first {
			if len(rest) == 0 || rest[0] != ',' {
				return dst, buf, errBadJSON
			}
			rest = skipSpace(rest[1:])
		}
		var h event.Header
		var keep bool
		var err error
		if h, keep, buf, rest, err = header(buf, rest); err != nil {
			return dst, buf, err
		}
		if keep {
			dst = append(dst, h)
		}
	}
	if len(skipSpace(rest[1:])) > 0 {
		return dst, buf, errBadJSON
	}
	return dst, buf, nil
}

// header reads one member of the object and the white space behind it.
func header(buf, text []byte) (h event.Header, keep bool, newBuf, rest []byte, err error) {
	start := len(buf)
	buf, rest, err = jsonString(buf, text)
	if err != nil {
		return h, false, buf, rest, err
	}
	h.Name = share(buf[start:])
	rest = skipSpace(rest)
	if len(rest) == 0 || rest[0] != ':' {
		return h, false, buf, rest, errBadJSON
	}
	rest = skipSpace(rest[1:])
	start, keep = len(buf), true
	if len(rest) > 0 && rest[0] == '"' {
		buf, rest, err = jsonString(buf, rest)
	} else {
		raw := rest[:valueEnd(rest)]
		rest = rest[len(raw):]
		if !json.Valid(raw) {
			return h, false, buf, rest, errBadJSON
		}
		keep = string(raw) != "null"
		buf = appendCompact(buf, raw)
	}
	h.Value = share(buf[start:])
	return h, keep, buf, skipSpace(rest), err
}

func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// valueEnd is where a value that isn't a string ends, or may end: what is before it is checked by the caller.
func valueEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return i
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// appendCompact appends valid JSON without its white space.
func appendCompact(dst, raw []byte) []byte {
	quoted := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case quoted && c == '\\':
			dst = append(dst, c)
			i++
			c = raw[i]
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// jsonString appends the characters of the JSON string with which b begins.
func jsonString(dst, b []byte) (out, rest []byte, err error) {
	if len(b) == 0 || b[0] != '"' {
		return dst, b, errBadJSON
	}
	for rest = b[1:]; ; {
		plain := 0
		for plain < len(rest) && rest[plain] != '"' && rest[plain] != '\\' && rest[plain] >= ' ' {
			plain++
		}
		dst, rest = append(dst, rest[:plain]...), rest[plain:]
		if len(rest) == 0 || rest[0] < ' ' {
			return dst, b, errBadJSON
		}
		if rest[0] == '"' {
			return dst, rest[1:], nil
		}
		var n int
		if dst, n, err = escape(dst, rest); err != nil {
			return dst, b, err
		}
		rest = rest[n:]
	}
}

// escape appends the character that the escape at the beginning of b stands for; n is the escape's length. Half of a
// surrogate pair becomes U+FFFD, as in encoding/json.
func escape(dst, b []byte) (out []byte, n int, err error) {
	if len(b) < 2 {
		return dst, 0, errBadJSON
	}
	switch c := b[1]; c {
	case '"', '\\', '/':
		return append(dst, c), 2, nil
	case 'b':
		return append(dst, '\b'), 2, nil
	case 'f':
		return append(dst, '\f'), 2, nil
	case 'n':
		return append(dst, '\n'), 2, nil
	case 'r':
		return append(dst, '\r'), 2, nil
	case 't':
		return append(dst, '\t'), 2, nil
	}
	r, ok := codeUnit(b)
	if !ok {
		return dst, 0, fmt.Errorf("%w: an escape that isn't one", errBadJSON)
	}
	if utf16.IsSurrogate(r) {
		low, ok := codeUnit(b[6:])
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), 12, nil
		}
	}
	return utf8.AppendRune(dst, r), 6, nil // which writes U+FFFD for a surrogate
}

// codeUnit reads \uXXXX.
func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
