package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The types that the payload column can have: those of cdc-relay init --payload-type.
const (
	typeJSON  = "json"
	typeJSONB = "jsonb"
	typeText  = "text"
	typeBytea = "bytea"
)

// Writer writes to one outbox table. It is immutable and may be used by any number of goroutines.
type Writer struct {
	table   string
	payload string // type of the column
	trace   func(context.Context) (traceparent, tracestate string)
	insert  string
}

// Option changes what a Writer does.
type Option func(*Writer) error

// Table names the table: table or schema.table, in double quotes where SQL would want them. Without a schema it is found by the
// search_path. Default: outbox.
func Table(name string) Option {
	return func(w *Writer) (err error) {
		w.table, err = ident(name)
		return err
	}
}

// PayloadType is the type of the payload column: json, jsonb, text or bytea. Default: json, which serves for jsonb too, but
// leaves it to the database to refuse what only jsonb can't keep.
func PayloadType(typ string) Option {
	return func(w *Writer) error {
		w.payload = typ
		if !slices.Contains([]string{typeJSON, typeJSONB, typeText, typeBytea}, typ) {
			return fmt.Errorf("payload type %q is not one of json, jsonb, text, bytea", typ)
		}
		return nil
	}
}

// TraceContext fills in the headers traceparent and tracestate (W3C Trace Context) of messages that have none, so that the
// consumer's work belongs to the trace of the transaction. An empty traceparent: there is no trace.
func TraceContext(from func(ctx context.Context) (traceparent, tracestate string)) Option {
	return func(w *Writer) error {
		w.trace = from
		return nil
	}
}

// New makes a Writer.
func New(options ...Option) (*Writer, error) {
	w := &Writer{table: `"outbox"`, payload: typeJSON}
	var errs []error
	for _, o := range options {
		errs = append(errs, o(w))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make a writer for the outbox: %w", err)
	}
	w.insert = insertSQL(w.table, w.payload)
	return w, nil
}

// standard is what the package's own Write uses.
var standard = &Writer{table: `"outbox"`, payload: typeJSON, insert: insertSQL(`"outbox"`, typeJSON)}

// Write inserts the messages into the table outbox within tx, as a Writer without options does.
func Write(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	return standard.Write(ctx, tx, messages...)
}

// WriteSQL is Write for database/sql.
func WriteSQL(ctx context.Context, tx *sql.Tx, messages ...Message) error {
	return standard.WriteSQL(ctx, tx, messages...)
}

// Write inserts the messages within tx, which stays the caller's to commit. A savepoint (tx.Begin) is as good.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	if tx == nil {
		return errNoTx
	}
	return w.write(ctx, messages, func(args []any) (int64, error) {
		tag, err := tx.Exec(ctx, w.insert, args...)
		return tag.RowsAffected(), err
	})
}

// WriteSQL is Write for database/sql.
func (w *Writer) WriteSQL(ctx context.Context, tx *sql.Tx, messages ...Message) error {
	if tx == nil {
		return errNoTx
	}
	return w.write(ctx, messages, func(args []any) (int64, error) {
		result, err := tx.ExecContext(ctx, w.insert, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

var errNoTx = errors.New("write to the outbox: there is no transaction; begin one, and write the event with the rows that it is about")

func (w *Writer) write(ctx context.Context, messages []Message, exec func(args []any) (int64, error)) error {
	if err := w.validate(messages); err != nil {
		return err
	}
	var traceparent, tracestate string
	if w.trace != nil && len(messages) > 0 {
		traceparent, tracestate = w.trace(ctx)
		if !printable(traceparent) || !printable(tracestate) {
			traceparent, tracestate = "", "" // no trace is worth a transaction
		}
	}
	for len(messages) > 0 {
		var b batch
		n := b.fill(messages, w.payload, traceparent, tracestate)
		switch rows, err := exec(b.args()); {
		case err != nil:
			return fmt.Errorf("write to the outbox: %w%s", err, w.hint(err))
		case rows != int64(n):
			// A trigger or a rule has taken rows away. They would never be published.
			return fmt.Errorf("write to the outbox: %d of %d rows were inserted into %s; is there a trigger or a rule on it?", rows, n, w.table)
		}
		messages = messages[n:]
	}
	return nil
}

// validate tells everything that is wrong with all messages.
func (w *Writer) validate(messages []Message) error {
	var wrong []string
	for i := range messages {
		for _, problem := range messages[i].problems(w.payload) {
			wrong = append(wrong, fmt.Sprintf("message %d (topic %q): %v", i+1, messages[i].Topic, problem))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("write to the outbox: %w: %s", ErrInvalid, strings.Join(wrong, "; "))
}

// hint says what to do about an error of the database. All drivers worth their name tell its SQLSTATE this way.
func (w *Writer) hint(err error) string {
	var pg interface{ SQLState() string }
	if !errors.As(err, &pg) {
		return ""
	}
	switch pg.SQLState() {
	case "42P01": // undefined_table
		return " (cdc-relay init makes the table; outbox.Table says which it is)"
	case "42703": // undefined_column
		return " (the table must have the columns of the one that cdc-relay init makes)"
	case "42804": // datatype_mismatch
		return " (outbox.PayloadType says of which type the payload column is)"
	}
	return ""
}
