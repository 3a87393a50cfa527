package fallbackpoll

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// Config are the settings of a Poller.
type Config struct {
	// Batch is the number of rows in a page; 1000 when 0.
	Batch int
	// PageBytes bounds the events of a page (event.Event.Size); one row is taken whatever its size. 8 MiB when 0.
	PageBytes int
	// WholeEvery is the longest time between the beginnings of two passes without a floor; a minute when 0. It is how
	// late a row can be found that became PENDING below the floor.
	WholeEvery time.Duration
	// SlowQuery is what a query that brings few rows must take before a floor is used at all; 100 ms when 0.
	SlowQuery time.Duration
	// FloorMargin is how far below the lowest id that can still be PENDING the floor is; 10000 when 0.
	FloorMargin int64
	// BlockOnDead has BeginPass say which keys a DEAD row blocks.
	BlockOnDead bool
	// DueIn knows of rows that wait for a retry although their table has no next_attempt_at; may be nil.
	DueIn func(event.RowID) time.Duration
}

func (c Config) withDefaults() Config {
	if c.Batch <= 0 {
		c.Batch = 1000
	}
	if c.PageBytes <= 0 {
		c.PageBytes = 8 << 20
	}
	if c.WholeEvery <= 0 {
		c.WholeEvery = time.Minute
	}
	if c.SlowQuery == 0 {
		c.SlowQuery = 100 * time.Millisecond
	}
	if c.FloorMargin <= 0 {
		c.FloorMargin = 10_000
	}
	return c
}

// Poller reads pages of PENDING rows. It is for one goroutine at a time.
type Poller struct {
	cfg     Config
	pool    *pgxpool.Pool
	metrics *Metrics
	log     *slog.Logger
	now     func() time.Time

	tables []*polled
	at     int  // the table that the pass is in
	whole  bool // the pass has no floor
	began  time.Time
	moment snapshot
}

// polled is a table with the state of the pass under way.
type polled struct {
	*table.Outbox
	stretches []stretch // what the pass has still to read of the table
	reader    reader
	floor     floor
}

// stretch is a part of a pass: rows of one table in one order, up to a bound.
type stretch struct {
	by    order
	bound any // int64 (byID), text of created_at (byCreatedAt); nothing for undated
	after []any
}

// New makes a Poller over the tables.
func New(cfg Config, pool *pgxpool.Pool, outboxes []*table.Outbox, metrics *Metrics, log *slog.Logger) *Poller {
	p := &Poller{cfg: cfg.withDefaults(), pool: pool, metrics: metrics, log: log, now: time.Now, moment: snapshot{limit: snapshotTime}}
	for _, o := range outboxes {
		p.tables = append(p.tables, &polled{Outbox: o, reader: reader{limit: p.cfg.Batch}})
	}
	return p
}

// BeginPass takes the snapshot that all pages of a new pass show, and notes the bound of each table. It gives up the pass
// under way. After an error there is no pass under way. A pass on which an order depends (a hand-over from poll to stream, for all keys or
// for one; or one that feeds while there is no stream) must be whole: below the floor may be an earlier row of a key.
// With BlockOnDead it returns one event, with nothing but table and key, for each key that has a DEAD row.
func (p *Poller) BeginPass(ctx context.Context, whole bool) ([]*event.Event, error) {
	p.EndPass(ctx)
	p.at = len(p.tables)
	p.whole = whole || !p.floorServes()
	batch := &pgx.Batch{}
	var blocked []*event.Event
	for _, t := range p.tables {
		t.stretches = nil
		t.queueBound(batch, p.whole)
		if p.cfg.BlockOnDead {
			t.queueDeadKeys(batch, &blocked)
		}
	}
	began := p.now()
	if err := p.moment.take(ctx, p.pool, began); err != nil {
		return nil, fmt.Errorf("begin a pass: %w", err)
	}
	if err := p.moment.tx.SendBatch(ctx, batch).Close(); err != nil {
		p.EndPass(ctx)
		return nil, fmt.Errorf("read the bound of a pass: %w", err)
	}
	p.moment.reading += p.now().Sub(began)
	slow := p.now().Sub(began) > p.cfg.SlowQuery
	for _, t := range p.tables {
		t.floor.begin(slow && len(t.stretches) == 0)
	}
	if p.whole {
		p.began = began
	}
	p.at = 0
	p.metrics.passes.Inc()
	return blocked, nil
}

// queueDeadKeys asks for the keys that a DEAD row blocks.
func (t *polled) queueDeadKeys(batch *pgx.Batch, blocked *[]*event.Event) {
	batch.Queue(deadKeysSQL(t.Outbox)).Query(func(rows pgx.Rows) error {
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, key := range keys {
			*blocked = append(*blocked, &event.Event{ID: event.RowID{Table: t.Index}, Key: key, HasKey: true})
		}
		return err
	})
}

// queueBound asks for the table's bound; the answer starts its stretches.
func (t *polled) queueBound(batch *pgx.Batch, whole bool) {
	if t.OrderByCreatedAt() {
		batch.Queue(boundSQL(t.Outbox, false)).Query(func(rows pgx.Rows) error {
			highest, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if len(highest) > 0 {
				t.stretches = append(t.stretches, stretch{by: byCreatedAt, bound: highest[0]})
			}
			return err
		})
		batch.Queue(undatedSQL(t.Outbox)).QueryRow(func(row pgx.Row) error {
			var some bool
			if err := row.Scan(&some); err != nil || !some {
				return err
			}
			t.stretches = append(t.stretches, stretch{by: undated})
			return nil
		})
		return
	}
	var args, after []any
	if !whole && t.floor.known {
		args, after = []any{t.floor.id}, []any{t.floor.id}
	}
	batch.Queue(boundSQL(t.Outbox, args != nil), args...).Query(func(rows pgx.Rows) error {
		highest, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if len(highest) > 0 {
			t.stretches = append(t.stretches, stretch{by: byID, bound: highest[0], after: after})
		}
		return err
	})
}

// NextPage reads the next page of the pass under way. Without one, the page is empty and the last. A pass whose snapshot
// has grown old, or was given up by EndPass, ends with a page that is cut. After an error the pass is over.
func (p *Poller) NextPage(ctx context.Context) (event.Page, error) {
	page, err := p.nextPage(ctx)
	switch {
	case err != nil:
		p.at = len(p.tables)
		p.EndPass(ctx)
	case page.Last:
		if !page.Cut {
			p.moment.limit = snapshotTime
		}
		p.EndPass(ctx)
	}
	return page, err
}

// EndPass lets go of the snapshot: nobody wants the rest of the pass for now. A further page would be cut.
func (p *Poller) EndPass(ctx context.Context) { p.moment.drop(ctx) }

func (p *Poller) nextPage(ctx context.Context) (event.Page, error) {
	var page event.Page
	if p.at < len(p.tables) && p.moment.over(p.now()) {
		p.at = len(p.tables)
		return event.Page{Last: true, Cut: true}, nil
	}
	for ; p.at < len(p.tables); p.at++ {
		t := p.tables[p.at]
		for len(t.stretches) > 0 {
			more, err := p.readPage(ctx, t, &page)
			if err != nil {
				return event.Page{}, fmt.Errorf("read a page of %s: %w", t, err)
			}
			if !more {
				t.stretches = t.stretches[1:]
			}
			if len(page.Events) > 0 {
				page.Last = !p.left()
				return page, nil
			}
		}
		if err := p.endTable(ctx, t); err != nil {
			return event.Page{}, err
		}
	}
	page.Last = true
	return page, nil
}

// left tells whether the pass has anything to read.
func (p *Poller) left() bool {
	for _, t := range p.tables[p.at:] {
		if len(t.stretches) > 0 {
			return true
		}
	}
	return false
}

// States says which of the rows are visible and PENDING, and which are visible and not. A row that isn't visible (yet), or
// was deleted, is in neither.
func (p *Poller) States(ctx context.Context, ids []event.RowID) (pending, settled []event.RowID, err error) {
	batch := &pgx.Batch{}
	for _, t := range p.tables {
		var mine []event.RowID
		for _, id := range ids {
			if id.Table == t.Index {
				mine = append(mine, id)
			}
		}
		if len(mine) == 0 {
			continue
		}
		batch.Queue(statesSQL(t.Outbox), t.IDArray(mine)).Query(func(rows pgx.Rows) error {
			var id event.RowID
			var waits bool
			_, err := pgx.ForEachRow(rows, []any{t.ScanID(&id), &waits}, func() error {
				if waits {
					pending = append(pending, id)
				} else {
					settled = append(settled, id)
				}
				return nil
			})
			return err
		})
	}
	if batch.Len() == 0 {
		return nil, nil, nil
	}
	if err := p.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, fmt.Errorf("ask which rows are still pending: %w", err)
	}
	return pending, settled, nil
}

// Nudge writes and flushes a commit record, so that the stream can pass a WAL position that was read before: on an idle
// server the last of the WAL (hint bits that a SELECT set, say) is flushed by nobody.
func (p *Poller) Nudge(ctx context.Context) error {
	if _, err := p.pool.Exec(ctx, nudgeSQL); err != nil {
		return fmt.Errorf("write a commit record: %w", err)
	}
	return nil
}
