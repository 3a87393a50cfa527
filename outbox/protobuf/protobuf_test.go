package protobuf_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/protobuf"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func TestAProtobufMessageComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	if err := table.Init(t.Context(), conn, table.DDLOptions{Table: "outbox", PayloadType: "bytea"}); err != nil {
		t.Fatal(err)
	}
	in, err := structpb.NewStruct(map[string]any{"order": "A-1", "cents": 4200.0, "text": "\x00käse"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := outbox.New(outbox.PayloadType("bytea"))
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return w.Write(t.Context(), tx, outbox.Message{Topic: "t", Payload: protobuf.Payload(in)}, outbox.Message{Topic: "t", Payload: protobuf.JSON(in)})
	})
	if err != nil {
		t.Fatal(err)
	}
	got := pgtest.All[[]byte](t, db, "SELECT payload FROM outbox ORDER BY id")
	var wire, text structpb.Struct
	if err := proto.Unmarshal(got[0], &wire); err != nil || !proto.Equal(in, &wire) {
		t.Errorf("%v, %v", &wire, err)
	}
	if err := text.UnmarshalJSON(got[1]); err != nil || !proto.Equal(in, &text) {
		t.Errorf("%v, %v", &text, err)
	}
}

func TestAMessageThatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	w, err := outbox.New(outbox.PayloadType("bytea"))
	if err != nil {
		t.Fatal(err)
	}
	invalid := wrapperspb.String("\xff") // proto3 wants UTF-8
	for _, p := range []outbox.Payload{protobuf.Payload(invalid), protobuf.JSON(invalid)} {
		if err := w.Write(t.Context(), someTx{}, outbox.Message{Topic: "t", Payload: p}); err == nil {
			t.Error("no error")
		}
	}
}

type someTx struct{ pgx.Tx }

func Example() {
	event := wrapperspb.String("A-1") // any generated message
	w, err := outbox.New(outbox.PayloadType("bytea"))
	if err != nil {
		log.Fatal(err)
	}
	pay := func(ctx context.Context, tx pgx.Tx) error {
		return w.Write(ctx, tx, outbox.Message{Topic: "orders", Key: "A-1", Type: "OrderPaid", Payload: protobuf.Payload(event)})
	}
	fmt.Printf("%T\n", pay)
	// Output: func(context.Context, pgx.Tx) error
}
