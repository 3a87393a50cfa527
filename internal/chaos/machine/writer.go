package machine

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

const (
	maxMessage = 256 << 10 // the topics' max.message.bytes
	keysEach   = 40        // of a writer
	specialKey = 4         // of those, the first for the volatile topic, and as many next for late ones
	skew       = 1.2       // of the use of keys, by Zipf's law
)

// writer has a connection, and keys that nobody else writes, so that the transactions of a key follow each other.
type writer struct {
	world    *world
	n        int
	style    style
	twoPhase bool    // PREPARE TRANSACTION, and later COMMIT PREPARED
	plain    bool    // nothing but committed rows for topics that are there
	rate     float64 // rows a second
	dsn      string
	rng      *rand.Rand
	zipf     *rand.Zipf
	keys     []key
	wrote    int64
	conn     *pgx.Conn

	events []history.Event // finished; read by others only when the writer has ended
	txn    []history.Event // of the transaction under way
	undone map[int64]bool  // by UID: rolled back to a savepoint
}

// key is a key of one table.
type key struct {
	name, table, topic string
	late               bool // goes to a late topic when there is one
	seq                int64
}

// hire makes the writers: two of small transactions, and one of each other style. Half of them come through a proxy.
func (w *world) hire() {
	for n, job := range []struct {
		style style
		share float64
	}{{small, .15}, {small, .15}, {savepoints, .1}, {copied, .2}, {bulk, .33}, {slow, .03}, {prepared, .04}} {
		wr := w.newWriter(n, job.style, job.share*float64(w.options.Rate))
		for k := range 2 * specialKey { // before they are shuffled, for not always the same are used most
			wr.keys[k].late = k >= specialKey
			if k < specialKey {
				wr.keys[k].topic = w.topics.volatile
			}
		}
		wr.rng.Shuffle(len(wr.keys), func(a, b int) { wr.keys[a], wr.keys[b] = wr.keys[b], wr.keys[a] })
		if n%2 == 1 {
			wr.dsn = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", w.gate.Addr(), w.database)
		}
		w.writers = append(w.writers, wr)
	}
	w.writers[len(w.writers)-1].twoPhase = true
	w.canary = w.newWriter(len(w.writers), canary, 0)
	w.large = w.newWriter(len(w.writers)+1, large, 0)
	w.canary.plain, w.large.plain = true, true
}

func (w *world) newWriter(n int, s style, rate float64) *writer {
	wr := &writer{world: w, n: n, style: s, rate: rate, dsn: w.bed.postgres.DSN(w.database)}
	wr.rng = rand.New(rand.NewPCG(w.options.Seed, uint64(n)+1))
	wr.zipf = rand.NewZipf(wr.rng, skew, 1, keysEach-1)
	for k := range keysEach {
		wr.keys = append(wr.keys, key{
			name: fmt.Sprintf("w%d-k%d", n, k), table: tables[k%len(tables)], topic: w.topics.steady[k/2%len(w.topics.steady)],
		})
	}
	return wr
}

// run writes until ctx ends. It finishes the transaction under way, and finds out how it ended, as long as hard lasts.
func (wr *writer) run(ctx, hard context.Context) error {
	defer func() {
		if wr.conn != nil {
			_ = wr.conn.Close(hard) // what it did is known
		}
	}()
	began, rows := time.Now(), 0
	for ctx.Err() == nil {
		if err := wr.once(hard); err != nil {
			return fmt.Errorf("writer %d: %w", wr.n, err)
		}
		rows += len(wr.txn)
		ahead := time.Duration(float64(rows)/wr.rate*float64(time.Second)) - time.Since(began)
		if ahead < -5*time.Second { // after an outage: carry on, not catch up
			began = began.Add(-ahead)
		}
		pause(ctx, ahead)
	}
	return nil
}

// once is one transaction. Its error is the harness's.
func (wr *writer) once(ctx context.Context) error {
	wr.txn, wr.undone = wr.txn[:0], map[int64]bool{}
	if wr.conn == nil || wr.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, wr.dsn)
		if err != nil {
			wr.conn = nil
			pause(ctx, 100*time.Millisecond)
			return ctx.Err()
		}
		wr.conn = conn
	}
	committed, err := wr.transaction(ctx)
	if err != nil {
		return err
	}
	for _, e := range wr.txn {
		e.Committed = committed && !wr.undone[e.UID]
		wr.events = append(wr.events, e)
	}
	return nil
}

// transaction reports whether it was committed. Whatever fails before the commit is asked for rolls back.
func (wr *writer) transaction(ctx context.Context) (committed bool, err error) {
	tctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var xid string
	err = wr.exec(tctx, "BEGIN")
	if err == nil {
		err = wr.conn.QueryRow(tctx, "SELECT pg_current_xact_id()::text").Scan(&xid)
	}
	if err == nil {
		err = wr.style(tctx, wr)
	}
	if err != nil {
		_ = wr.conn.Close(tctx) // the server rolls back
		return false, ctx.Err()
	}
	if wr.rng.Float64() < 0.12 && !wr.plain {
		_ = wr.exec(tctx, "ROLLBACK") // or the server does it, when the connection is gone
		return false, ctx.Err()
	}
	now := time.Now()
	for i := range wr.txn {
		wr.txn[i].At = now
	}
	if wr.twoPhase {
		return wr.commitPrepared(ctx, tctx, xid)
	}
	if err := wr.exec(tctx, "COMMIT"); err != nil {
		return wr.outcome(ctx, xid)
	}
	return true, nil
}

// exec runs a statement, and closes the connection when that fails: what it is worth is not known.
func (wr *writer) exec(ctx context.Context, sql string, args ...any) error {
	tag, err := wr.conn.Exec(ctx, sql, args...)
	if err == nil && sql == "COMMIT" && tag.String() != "COMMIT" {
		err = errors.New("commit ended in " + tag.String())
	}
	if err != nil {
		_ = wr.conn.Close(ctx) // broken anyway
	}
	return err
}

// outcome asks the server what became of a transaction whose commit was not answered.
func (wr *writer) outcome(ctx context.Context, xid string) (committed bool, err error) {
	for {
		var state string
		err := wr.world.pool.QueryRow(ctx, transactionState, xid).Scan(&state)
		switch {
		case err == nil && state == "committed":
			return true, nil
		case err == nil && state == "aborted":
			return false, nil
		case err == nil && state != "in progress":
			return false, fmt.Errorf("the server says of transaction %s: %s", xid, state)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return false, fmt.Errorf("how transaction %s ended is not known: %w", xid, ctx.Err())
		}
	}
}

// draft makes a row of the transaction under way.
func (wr *writer) draft() (e history.Event, payload string) {
	k := &wr.keys[wr.zipf.Uint64()]
	e = history.Event{UID: int64(wr.n)<<40 | wr.wrote, Table: k.table, Topic: k.topic, Key: k.name}
	wr.wrote++
	if late := wr.world.topics.late.Load(); k.late && late != nil && wr.rng.IntN(2) == 0 {
		e.Topic = *late
	}
	length := 20 + wr.rng.IntN(200)
	switch luck := wr.rng.Float64(); {
	case wr.plain:
	case luck < 0.05:
		e.Key = ""
	case luck < 0.051:
		e.Poison, e.Topic = true, invalid
	case luck < 0.0515 && k.topic != wr.world.topics.volatile:
		e.Poison, e.Topic, length = true, k.topic, maxMessage+1000
	}
	if e.Key != "" {
		k.seq++
		e.Seq = k.seq
	}
	// The form in which jsonb prints it, so that both tables publish the same bytes.
	payload = fmt.Sprintf(`{"u": %d, "x": %q}`, e.UID, strings.Repeat("x", length))
	e.Sum = crc32.ChecksumIEEE([]byte(payload))
	wr.txn = append(wr.txn, e)
	return e, payload
}

// rows are arguments of insertRows, by table.
type rows struct {
	topics, payloads []string
	keys             []*string
}

func (wr *writer) drafts(n int) map[string]*rows {
	by := map[string]*rows{}
	for range n {
		e, payload := wr.draft()
		r := by[e.Table]
		if r == nil {
			r = &rows{}
			by[e.Table] = r
		}
		r.topics, r.payloads, r.keys = append(r.topics, e.Topic), append(r.payloads, payload), append(r.keys, nullable(e.Key))
	}
	return by
}

func nullable(key string) *string {
	if key == "" {
		return nil
	}
	return &key
}
