package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
	"github.com/cdc-relay/cdc-relay/outbox"
)

func TestWhatCannotBeWrittenIsRefusedBeforeTheDatabaseSeesIt(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	conn := db.Connect(t)
	good := outbox.JSON(1)
	header := func(name, value string) outbox.Message {
		return outbox.Message{Topic: "t", Payload: good, Headers: map[string]string{name: value}}
	}
	raw := func(s string) outbox.Message {
		return outbox.Message{Topic: "t", Payload: outbox.JSON(json.RawMessage(s))}
	}
	for _, c := range []struct {
		typ  string
		m    outbox.Message
		says string
	}{
		{"json", outbox.Message{Payload: good}, "the topic is empty"},
		{"json", outbox.Message{Topic: "a\x00b", Payload: good}, "the topic has a NUL"},
		{"json", outbox.Message{Topic: "a\xff", Payload: good}, "the topic is not valid UTF-8"},
		{"json", outbox.Message{Topic: "t", Key: "secret\x00", Payload: good}, "the key has a NUL"},
		{"json", outbox.Message{Topic: "t", Key: "secret\xff", Payload: good}, "the key is not valid UTF-8"},
		{"json", outbox.Message{Topic: "t", Type: "\x00", Payload: good}, "the type has a NUL"},
		{"json", header("", "x"), "a header has no name"},
		{"json", header("a\x00", "x"), "has a NUL"},
		{"json", header("a", "secret\x00"), `header "a" has a NUL`},
		{"json", header("a", "secret\xff"), `header "a" is not valid UTF-8`},
		{"json", header("message_id", "x"), "header message_id is one that the relay sets itself"},
		{"json", header("created_at", "x"), "header created_at"},
		{"json", outbox.Message{Topic: "t", Payload: good, ID: "7"}, "the id is not a UUID"},
		{"json", outbox.Message{Topic: "t", Payload: good, ID: "0123456789abcdef0123456789abcdef0123"}, "the id is not a UUID"},
		{"json", outbox.Message{Topic: "t", Payload: good, NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "in the year 10000"},
		{"json", outbox.Message{Topic: "t"}, "say outbox.Tombstone()"},
		{"json", outbox.Message{Topic: "t", Payload: outbox.JSON(math.NaN())}, "can't be written as JSON"},
		{"json", outbox.Message{Topic: "t", Payload: outbox.Failed(nil)}, "the payload can't be made"},
		{"json", outbox.Message{Topic: "t", Payload: outbox.Text("secret")}, "text doesn't fit a payload column of type json"},
		{"json", outbox.Message{Topic: "t", Payload: outbox.Bytes([]byte("secret"))}, "bytes don't fit a payload column of type json"},
		{"text", outbox.Message{Topic: "t", Payload: outbox.Bytes([]byte("secret"))}, "bytes don't fit a payload column of type text"},
		{"text", outbox.Message{Topic: "t", Payload: outbox.Text("secret\x00")}, "the payload has a NUL"},
		{"text", outbox.Message{Topic: "t", Payload: outbox.Text("secret\xff")}, "the payload is not valid UTF-8"},
		{"json", raw(`{"secret": }`), "the payload is not valid JSON"},
		{"json", raw(``), "the payload is not valid JSON"},
		{"json", raw("\"secret\xff\""), "the payload is not valid UTF-8"},
		{"bytea", raw(`{"secret": }`), "the payload is not valid JSON"},
		{"jsonb", raw(`"secret\u0000"`), "jsonb can't keep"},
		{"jsonb", raw(`"\ud800"`), "jsonb can't keep"},
		{"jsonb", raw(`"\udc00"`), "jsonb can't keep"},
		{"jsonb", raw(`"\ud800x"`), "jsonb can't keep"},
		{"jsonb", raw(`"\ud800\n"`), "jsonb can't keep"},
		{"jsonb", raw(`"\ud800\ud800"`), "jsonb can't keep"},
	} {
		w := newWriter(t, outbox.PayloadType(c.typ))
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			err := w.Write(t.Context(), tx, outbox.Message{Topic: "t", Payload: good}, c.m)
			if !errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), "message 2") || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("want %q, got %v", c.says, err)
			}
			_, err = tx.Exec(t.Context(), "SELECT 1") // the transaction is still good
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if got := pgtest.One[int](t, db, "SELECT count(*) FROM outbox"); got != 0 {
		t.Errorf("%d rows of messages that were refused, or of those beside them", got)
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	tx, err := pgtest.Database(t).Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = outbox.Write(t.Context(), tx, outbox.Message{Topic: "a"}, outbox.Message{Payload: outbox.JSON(1), ID: "x"})
	want := `write to the outbox: invalid message: message 1 (topic "a"): there is no payload: say outbox.Tombstone() for NULL; ` +
		`message 2 (topic ""): the topic is empty; message 2 (topic ""): the id is not a UUID of the form 01234567-89ab-cdef-0123-456789abcdef`
	if err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

func TestNothingToWriteIsNoError(t *testing.T) {
	t.Parallel()
	tx, err := pgtest.Database(t).Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Write(t.Context(), tx); err != nil {
		t.Error(err)
	}
}

// What passes the validation must pass the database, and come out as it went in: else it would break the caller's
// transaction. What only the validation refuses is a fault as well.
func TestValidationAndPostgresAgree(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox", PayloadType: "jsonb"})
	conn := db.Connect(t)
	w := newWriter(t, outbox.PayloadType("jsonb"))
	piece := rapid.SampledFrom([]string{`\u0000`, `\ud83e`, `\uddc0`, `\uD83E\uDDC0`, `\u00e4`, `\\`, `\\u0000`, `\"`, `\n`, "a", "ä", "🧀", "\x00", "\xff", `"`, "{", ","})
	rapid.Check(t, func(t *rapid.T) {
		payload := `["` + strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "payload"), "") + `"]`
		m := outbox.Message{
			Topic: "t" + rapid.String().Draw(t, "topic"), Key: rapid.String().Draw(t, "key"), Type: rapid.String().Draw(t, "type"),
			Headers: map[string]string{"h": rapid.String().Draw(t, "header")}, Payload: outbox.JSON(json.RawMessage(payload)),
		}
		tx, err := conn.Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		err = w.Write(context.Background(), tx, m)
		if errors.Is(err, outbox.ErrInvalid) {
			valid := !strings.ContainsRune(m.Topic+m.Key+m.Type+m.Headers["h"], 0)
			if _, refused := tx.Exec(context.Background(), "SELECT $1::text::jsonb", payload); valid && refused == nil {
				t.Fatalf("%q: %v, but the database takes it", payload, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q passed the validation: %v", payload, err)
		}
		var same bool
		err = tx.QueryRow(context.Background(), `SELECT topic = $1 AND coalesce(key, '') = $2 AND coalesce(event_type, '') = $3 AND headers->>'h' = $4 AND payload = $5::text::jsonb FROM outbox`,
			m.Topic, m.Key, m.Type, m.Headers["h"], payload).Scan(&same)
		if err != nil || !same {
			t.Fatalf("it doesn't come out as it went in (%v)", err)
		}
	})
}
