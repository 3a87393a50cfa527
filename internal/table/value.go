package table

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Formats of values: the send and out functions of each type in Postgres (src/backend/utils/adt).

var errFormat = errors.New("unknown format of a value")

func (f Field) check() error {
	if f.Format != Null && f.Format != Text && f.Format != Binary {
		return fmt.Errorf("%w: %q", errFormat, f.Format)
	}
	return nil
}

func wrongLength(k kind, n int) error { return fmt.Errorf("%d bytes for %s", n, k) }

// integer reads a smallint, integer or bigint.
func integer(f Field, k kind) (int64, error) {
	if f.Format == Text {
		n, err := strconv.ParseInt(string(f.Data), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("not an integer in %d bytes of text", len(f.Data))
		}
		return n, nil
	}
	switch {
	case k == kindInt8 && len(f.Data) == 8:
		return int64(binary.BigEndian.Uint64(f.Data)), nil
	case k == kindInt4 && len(f.Data) == 4:
		return int64(int32(binary.BigEndian.Uint32(f.Data))), nil
	case k == kindInt2 && len(f.Data) == 2:
		return int64(int16(binary.BigEndian.Uint16(f.Data))), nil
	}
	return 0, wrongLength(k, len(f.Data))
}

// uuid reads a uuid.
func uuid(f Field) (u [16]byte, err error) {
	if f.Format == Text {
		return parseUUID(f.Data)
	}
	if len(f.Data) != 16 {
		return u, wrongLength(kindUUID, len(f.Data))
	}
	return [16]byte(f.Data), nil
}

// parseUUID reads the canonical form, in either case.
func parseUUID(b []byte) (u [16]byte, err error) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, errUUID
	}
	for i, at := range [...]int{0, 4, 9, 14, 19, 24, 28, 32} { // two bytes each
		if _, err := hex.Decode(u[2*i:2*i+2], b[at:at+4]); err != nil {
			return [16]byte{}, errUUID
		}
	}
	return u, nil
}

var errUUID = errors.New("a text that is no uuid")

// appendWord appends a value that is used as a word (key, topic, event type, status), in the form of its text.
func appendWord(dst []byte, f Field, k kind) ([]byte, error) {
	if f.Format == Text {
		return append(dst, f.Data...), nil
	}
	switch k {
	case kindInt2, kindInt4, kindInt8:
		n, err := integer(f, k)
		return strconv.AppendInt(dst, n, 10), err
	case kindUUID:
		u, err := uuid(f)
		return append(dst, event.FormatUUID(u)...), err
	default:
		return append(dst, f.Data...), nil
	}
}

// jsonText is the text of a json, jsonb or text value. The binary form of jsonb is a version byte, 1, before the text.
func jsonText(f Field, k kind) ([]byte, error) {
	if k != kindJSONB || f.Format != Binary {
		return f.Data, nil
	}
	if len(f.Data) == 0 || f.Data[0] != 1 {
		return nil, errors.New("a version of jsonb that isn't known")
	}
	return f.Data[1:], nil
}

// appendPayload appends the bytes of a payload.
func appendPayload(dst []byte, f Field, k kind) ([]byte, error) {
	if k == kindBytea && f.Format == Text {
		return appendBytea(dst, f.Data)
	}
	text, err := jsonText(f, k)
	return append(dst, text...), err
}

// appendBytea reads both text forms of bytea: bytea_output hex ("\x" and two digits a byte) and escape (a backslash is
// doubled, other bytes may be a backslash and three octal digits).
func appendBytea(dst, text []byte) ([]byte, error) {
	if digits, ok := bytes.CutPrefix(text, []byte(`\x`)); ok {
		dst, err := hex.AppendDecode(dst, digits)
		if err != nil {
			return dst, fmt.Errorf("bytea: %w", err)
		}
		return dst, nil
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		rest := text[i+1:]
		switch {
		case len(rest) >= 1 && rest[0] == '\\':
			dst = append(dst, '\\')
			i++
		case len(rest) >= 3 && octal(rest[0], 3) && octal(rest[1], 7) && octal(rest[2], 7):
			dst = append(dst, (rest[0]-'0')<<6|(rest[1]-'0')<<3|(rest[2]-'0'))
			i += 3
		default:
			return dst, errors.New("bytea: a backslash that escapes nothing")
		}
	}
	return dst, nil
}

func octal(c, most byte) bool { return '0' <= c && c <= '0'+most }

// count reads a number of attempts, as far as it fits.
func count(f Field, k kind) (int32, error) {
	n, err := integer(f, k)
	return int32(min(max(n, math.MinInt32), math.MaxInt32)), err
}
