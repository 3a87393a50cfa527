package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// nasty is what array literals, JSON and drivers have stumbled over.
var nasty = []string{
	"plain", "NULL", `"`, `\`, `\\"`, `{a,b}`, "a,b", " blanks ", "line\nbreak\ttab\r", "käse 奶酪 🧀", "'; DROP TABLE outbox; --", "$1 ? @x :y", "\u2028 \u00a0",
	"\x01\x7f", "</script>&", "%s",
}

func pointer(s string) *string { return &s }

// modes are all the ways in which pgx runs a query; the last two and describe-exec are what poolers in transaction mode need.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// writers write messages in one transaction, through each library.
func writers(t *testing.T, dsn string, w *outbox.Writer) map[string]func(messages ...outbox.Message) error {
	t.Helper()
	all := map[string]func(messages ...outbox.Message) error{}
	for _, mode := range modes {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		all["pgx, "+mode.String()] = func(messages ...outbox.Message) error {
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				return err
			}
			defer conn.Close(context.Background())
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return w.Write(t.Context(), tx, messages...) })
		}
		all["database/sql, "+mode.String()] = func(messages ...outbox.Message) error {
			db := stdlib.OpenDB(*config)
			defer db.Close()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := w.WriteSQL(t.Context(), tx, messages...); err != nil {
				return err
			}
			return tx.Commit()
		}
	}
	return all
}

func TestEveryTextArrivesAsItWasThroughEveryDriverAndPayloadType(t *testing.T) {
	t.Parallel()
	for _, typ := range table.PayloadTypes {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			db := initialised(t, table.DDLOptions{Table: "outbox", PayloadType: typ})
			conn := db.Connect(t)
			payload := "payload::text"
			if typ == "bytea" {
				payload = "convert_from(payload, 'UTF8')"
			}
			var messages []outbox.Message
			var want []stored
			for i, s := range nasty {
				text, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				m := outbox.Message{
					ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Topic: s, Key: s, Type: s, Headers: map[string]string{s: s, "empty": ""}, Payload: outbox.JSON(json.RawMessage(text)),
				}
				w := stored{
					ID: m.ID, Topic: s, Key: &s, Type: &s, Headers: m.Headers, Payload: pointer(string(text)), Status: "PENDING", Due: true, Defaulted: true,
				}
				if typ == "jsonb" { // it keeps characters, not spellings
					w.Payload = pointer(pgtest.One[string](t, db, `SELECT $1::jsonb::text`, string(text)))
				}
				if typ == "text" || typ == "bytea" {
					m.Payload, w.Payload = outbox.Text(s), &s
				}
				messages, want = append(messages, m), append(want, w)
			}
			messages = append(messages, outbox.Message{ID: "00000000-0000-4000-8000-ffffffffffff", Topic: "t", Payload: outbox.Tombstone()})
			want = append(want, stored{ID: "00000000-0000-4000-8000-ffffffffffff", Topic: "t", Headers: map[string]string{}, Status: "PENDING", Due: true, Defaulted: true})
			for name, write := range writers(t, db.DSN, newWriter(t, outbox.PayloadType(typ))) {
				db.Exec(t, "TRUNCATE outbox")
				if err := write(messages...); err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if diff := cmp.Diff(want, rows(t, conn, payload)); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		})
	}
}

func TestBytesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox", PayloadType: "bytea"})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	write(t, db.Connect(t), newWriter(t, outbox.PayloadType("bytea")), outbox.Message{Topic: "t", Payload: outbox.Bytes(all)},
		outbox.Message{Topic: "t", Payload: outbox.Bytes(nil)}, outbox.Message{Topic: "t", Payload: outbox.JSON(map[string]int{"a": 1})})
	got := pgtest.All[[]byte](t, db, "SELECT payload FROM outbox ORDER BY id")
	if diff := cmp.Diff([][]byte{all, {}, []byte(`{"a":1}`)}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheWriterWithoutOptionsServesColumnsOfJSONAndOfText(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"json", "jsonb", "text"} {
		db := initialised(t, table.DDLOptions{Table: "outbox", PayloadType: typ})
		tx, err := db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Write(t.Context(), tx, outbox.Message{Topic: "t", Payload: outbox.JSON([]int{1, 2})}); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		_ = tx.Commit(t.Context())
		if got := strings.ReplaceAll(pgtest.One[string](t, db, "SELECT payload::text FROM outbox"), " ", ""); got != "[1,2]" {
			t.Errorf("%s: %s", typ, got)
		}
	}
}

func TestNothingIsCommittedButByTheCaller(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	ctx, conn := t.Context(), db.Connect(t)
	m := outbox.Message{Topic: "t", Payload: outbox.JSON(1)}
	count := func(want int) {
		t.Helper()
		if got := pgtest.One[int](t, db, "SELECT count(*) FROM outbox"); got != want {
			t.Errorf("%d rows, want %d", got, want)
		}
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Write(ctx, tx, m); err != nil {
		t.Fatal(err)
	}
	count(0)
	nested, err := tx.Begin(ctx) // a savepoint
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Write(ctx, nested, m, m); err != nil {
		t.Fatal(err)
	}
	_ = nested.Rollback(ctx)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	count(1)
	if err := outbox.Write(ctx, tx, m); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("in a transaction that has ended: %v", err)
	}
	plain := stdlib.OpenDB(*conn.Config())
	defer plain.Close()
	stx, err := plain.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.WriteSQL(ctx, stx, m); err != nil {
		t.Fatal(err)
	}
	_ = stx.Rollback()
	if err := outbox.WriteSQL(ctx, stx, m); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("in a transaction that has ended: %v", err)
	}
	count(1)
}

func TestPoolsAndConnectionsAreNoTransactions(t *testing.T) {
	t.Parallel()
	tx := reflect.TypeFor[pgx.Tx]()
	for _, typ := range []reflect.Type{reflect.TypeFor[*pgxpool.Pool](), reflect.TypeFor[*pgxpool.Conn](), reflect.TypeFor[*pgx.Conn]()} {
		if typ.Implements(tx) {
			t.Errorf("%s would be taken for a transaction", typ)
		}
	}
	if !reflect.TypeFor[*pgxpool.Tx]().Implements(tx) {
		t.Error("a pool's transaction wouldn't be taken")
	}
	for _, err := range []error{outbox.Write(t.Context(), nil), outbox.WriteSQL(t.Context(), nil)} {
		if err == nil || !strings.Contains(err.Error(), "there is no transaction") {
			t.Errorf("error %v", err)
		}
	}
}

// TestG3_… : what the poll takes for the order of a key is the order of ids.
func TestG3_RowsOfACallHaveIDsInTheOrderOfItsMessages(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	var messages []outbox.Message
	for i := range 2500 { // several statements
		messages = append(messages, outbox.Message{Topic: "t", Key: "k", Payload: outbox.JSON(i)})
	}
	for i := range 4 {
		messages = append(messages, outbox.Message{Topic: "t", Payload: outbox.JSON(strings.Repeat(fmt.Sprint(i), 3<<20))})
	}
	write(t, db.Connect(t), newWriter(t), messages...)
	got := pgtest.All[string](t, db, "SELECT left(payload::text, 5) FROM outbox ORDER BY id")
	if len(got) != len(messages) {
		t.Fatalf("%d rows", len(got))
	}
	for i, text := range got[:2500] {
		if text != fmt.Sprint(i) {
			t.Fatalf("row %d is message %s", i, text)
		}
	}
	if diff := cmp.Diff([]string{`"0000`, `"1111`, `"2222`, `"3333`}, got[2500:]); diff != "" {
		t.Error(diff)
	}
}

var version7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestEveryMessageHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	before := time.Now().UnixMilli()
	messages := make([]outbox.Message, 100)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "t", Payload: outbox.JSON(i)}
	}
	const own = "ABCDEF01-2345-6789-ABCD-EF0123456789"
	messages[0].ID = own
	write(t, db.Connect(t), newWriter(t), messages...)
	ids := pgtest.All[string](t, db, "SELECT message_id::text FROM outbox ORDER BY id")
	seen := map[string]bool{}
	for i, id := range ids {
		seen[id] = true
		var at int64
		_, _ = fmt.Sscanf(id[:8]+id[9:13], "%x", &at)
		switch {
		case i == 0 && id != strings.ToLower(own):
			t.Errorf("the id is %s", id)
		case i > 0 && (!version7.MatchString(id) || at < before || at > time.Now().UnixMilli()):
			t.Errorf("%s is no UUID of this moment", id)
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d ids", len(seen))
	}
}

func TestNotBeforeIsTheRowsNextAttempt(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	at := time.Date(2031, 2, 3, 4, 5, 6, 789012000, time.FixedZone("east", 5*3600))
	write(t, db.Connect(t), newWriter(t), outbox.Message{Topic: "t", Payload: outbox.JSON(1), NotBefore: at})
	if got := pgtest.One[time.Time](t, db, "SELECT next_attempt_at FROM outbox"); !got.Equal(at) {
		t.Errorf("next attempt at %v", got)
	}
}

func TestTheTraceOfTheContextIsInTheHeaders(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	conn := db.Connect(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	type key struct{}
	w := newWriter(t, outbox.TraceContext(func(ctx context.Context) (string, string) {
		of, _ := ctx.Value(key{}).([2]string)
		return of[0], of[1]
	}))
	own := map[string]string{"a": "b"}
	traced := map[string]string{"traceparent": "mine", "tracestate": "mine"}
	for _, c := range []struct {
		trace [2]string
		own   map[string]string
		want  map[string]string
	}{
		{[2]string{parent, "vendor=1"}, nil, map[string]string{"traceparent": parent, "tracestate": "vendor=1"}},
		{[2]string{parent, ""}, own, map[string]string{"traceparent": parent, "a": "b"}},
		{[2]string{parent, "vendor=1"}, traced, traced},
		{[2]string{parent, ""}, map[string]string{"tracestate": "of another trace"}, map[string]string{"traceparent": parent}},
		{[2]string{"", "vendor=1"}, own, own},
		{[2]string{"\x00", ""}, own, own},
	} {
		db.Exec(t, "TRUNCATE outbox")
		ctx := context.WithValue(t.Context(), key{}, c.trace)
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			return w.Write(ctx, tx, outbox.Message{Topic: "t", Payload: outbox.JSON(1), Headers: c.own})
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, rows(t, conn, "payload::text")[0].Headers); diff != "" {
			t.Error(diff)
		}
	}
	if len(own) != 1 {
		t.Error("the caller's headers were changed")
	}
}

func TestTheTableCanHaveAnyName(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	db.Exec(t, `CREATE SCHEMA "My Shop"; CREATE SCHEMA shop`)
	for _, name := range []string{"events", "Shop.Events", `"My Shop"."Out""box"`, `"user"`, "shop.übergabe"} {
		if err := table.Init(t.Context(), conn, table.DDLOptions{Table: name}); err != nil {
			t.Fatal(err)
		}
		write(t, conn, newWriter(t, outbox.Table(name)), outbox.Message{Topic: "t", Payload: outbox.JSON(1)})
	}
	if got := pgtest.One[int](t, db, `SELECT (SELECT count(*) FROM "My Shop"."Out""box") + (SELECT count(*) FROM shop.events) + (SELECT count(*) FROM "user")`); got != 3 {
		t.Errorf("%d rows", got)
	}
	for _, name := range []string{"", "a.b.c", "shop.", `"open`, "a b", "a;b", `a"b`, `""`} {
		if _, err := outbox.New(outbox.Table(name)); err == nil || !strings.Contains(err.Error(), "schema.table") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := outbox.New(outbox.PayloadType("xml")); err == nil {
		t.Error("a payload of type xml")
	}
}

func TestADatabaseThatRefusesIsExplained(t *testing.T) {
	t.Parallel()
	db := initialised(t, table.DDLOptions{Table: "outbox"})
	db.Exec(t, `CREATE TABLE thin (id bigint, payload json);
		CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TABLE forgetful (LIKE outbox INCLUDING ALL); CREATE TRIGGER forget BEFORE INSERT ON forgetful FOR EACH ROW EXECUTE FUNCTION forget()`)
	for name, c := range map[string]struct {
		options []outbox.Option
		payload outbox.Payload
		says    string
	}{
		"no table":    {[]outbox.Option{outbox.Table("nowhere")}, outbox.JSON(1), "cdc-relay init makes the table"},
		"no column":   {[]outbox.Option{outbox.Table("thin")}, outbox.JSON(1), "must have the columns"},
		"wrong type":  {[]outbox.Option{outbox.PayloadType("bytea")}, outbox.Bytes([]byte("x")), "outbox.PayloadType says"},
		"no row left": {[]outbox.Option{outbox.Table("forgetful")}, outbox.JSON(1), "0 of 1 rows were inserted"},
	} {
		for driver, write := range writers(t, db.DSN, newWriter(t, c.options...)) {
			err := write(outbox.Message{Topic: "t", Payload: c.payload})
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, outbox.ErrInvalid) {
				t.Errorf("%s, %s: %v", name, driver, err)
			}
		}
	}
}
