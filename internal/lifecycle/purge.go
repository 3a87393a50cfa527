package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// wholeEvery is the time between two sweeps over all that is old enough; the ones in between begin where the last one
// ended.
const wholeEvery = time.Hour

// maxChunks bounds a sweep over a table whose ids say nothing about time; the next one goes on there.
const maxChunks = 200

// Purger deletes PUBLISHED rows after their retention, and DEAD ones after theirs where one is set.
//
// There is no index on published_at, since each would make every mark dearer. Instead a sweep walks the primary key
// upward in chunks, one transaction each, until a whole chunk is too young to hold anything due. It remembers where the
// first young row was and begins there the next time; what it left behind (rows published late, DEAD rows that were
// retried) is found by the whole sweep of each hour.
type Purger struct {
	cfg     Config
	pool    *pgxpool.Pool
	metrics *Metrics
	log     *slog.Logger
	tables  []*purged // owned by the one who calls Run or Purge
	now     func() time.Time
}

// purged is a table with the place where its next sweep begins.
type purged struct {
	*table.Outbox
	from  *event.RowID // nil: at the beginning; the rows behind it
	whole time.Time    // when the last whole sweep began
}

// NewPurger makes a Purger over the tables. It is for one goroutine.
func NewPurger(cfg Config, pool *pgxpool.Pool, outboxes []*table.Outbox, metrics *Metrics, log *slog.Logger) *Purger {
	p := &Purger{cfg: cfg.withDefaults(), pool: pool, metrics: metrics, log: log, now: time.Now}
	for _, o := range outboxes {
		p.tables = append(p.tables, &purged{Outbox: o})
	}
	return p
}

// Run purges each PurgeInterval until ctx ends.
func (p *Purger) Run(ctx context.Context) error {
	for _, t := range p.tables {
		if publishedAt(t.Outbox) == "" {
			p.log.Warn("the table has neither published_at nor created_at, its published rows can't be purged", "table", t.String())
		}
	}
	ticker := time.NewTicker(p.cfg.PurgeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, t := range p.tables {
			if err := p.purgeOnce(ctx, t); err != nil && ctx.Err() == nil {
				p.log.Warn("purging failed, it is tried again", "table", t.String(), "error", err, "purge_interval", p.cfg.PurgeInterval)
			}
		}
	}
}

// purgeOnce is one sweep, whole when it is time for that.
func (p *Purger) purgeOnce(ctx context.Context, t *purged) error {
	s := sweep{whole: p.now().Sub(t.whole) >= wholeEvery}
	if s.whole {
		t.whole = p.now()
		if !t.OrderByCreatedAt() {
			t.from = nil
		}
	} else if p.cfg.Retention <= 0 {
		return nil // published rows are deleted at once; only a whole sweep can find what an earlier setting has left
	}
	err := p.sweep(ctx, t, &s)
	if n := s.purged + s.dead; n > 0 {
		p.log.Debug("purged", "table", t.String(), "published", s.purged, "dead", s.dead, "looked_at", s.looked)
	}
	return err
}

// PurgeProgress is how far a purge is.
type PurgeProgress struct {
	Table  string
	Looked int64 // rows that were looked at in this table
	Purged int64 // rows that were deleted in this table (dry run: would be)
}

// Purge deletes everything that is due, or with dryRun counts it. progress, which may be nil, is called after each
// transaction. The number is of all tables, and right after an error too.
func (p *Purger) Purge(ctx context.Context, dryRun bool, progress func(PurgeProgress)) (int64, error) {
	var total int64
	for _, t := range p.tables {
		s := sweep{whole: true, everything: true, dry: dryRun, progress: progress}
		walk := &purged{Outbox: t.Outbox}
		err := p.sweep(ctx, walk, &s)
		total += s.purged + s.dead
		if err != nil {
			return total, fmt.Errorf("purge %s: %w", t, err)
		}
	}
	return total, nil
}

// sweep is one walk over a table.
type sweep struct {
	whole      bool // DEAD rows too, and every row that isn't young
	everything bool // to the end of the table
	dry        bool
	progress   func(PurgeProgress)

	looked, purged, dead int64
}

func (p *Purger) sweep(ctx context.Context, t *purged, s *sweep) error {
	if s.whole && p.cfg.DeadRetention > 0 && deadSince(t.Outbox) != "" {
		if err := p.sweepDead(ctx, t, s); err != nil {
			return err
		}
	}
	if publishedAt(t.Outbox) == "" {
		return nil
	}
	var firstYoung *event.RowID
	at := t.from
	for chunks := 0; ; chunks++ {
		c, err := p.chunk(ctx, t, at, s.dry)
		if err != nil {
			return err
		}
		s.looked += c.looked
		s.purged += c.purged
		s.report(t)
		if firstYoung == nil {
			firstYoung = c.firstYoung
		}
		at = c.last
		end := c.looked < int64(p.cfg.PurgeBatch)
		if t.OrderByCreatedAt() {
			if end || chunks >= maxChunks && !s.everything {
				t.from = at
				if end {
					t.from = nil
				}
				return nil
			}
			continue
		}
		if end || c.young == c.looked && !s.everything {
			break
		}
	}
	t.remember(firstYoung, at)
	return nil
}

// remember notes where the next sweep begins: at the first young row, or behind the last row there was.
func (t *purged) remember(firstYoung, last *event.RowID) {
	switch {
	case firstYoung != nil:
		before := event.IntID(t.Index, firstYoung.Int()-1)
		t.from = &before
	case last != nil:
		t.from = last
	}
}

func (s *sweep) report(t *purged) {
	if s.progress != nil {
		s.progress(PurgeProgress{Table: t.String(), Looked: s.looked, Purged: s.purged + s.dead})
	}
}

// chunk is what one transaction has looked at.
type chunk struct {
	looked, young, purged int64
	last, firstYoung      *event.RowID
}

func (p *Purger) chunk(ctx context.Context, t *purged, after *event.RowID, dry bool) (chunk, error) {
	args := []any{p.cfg.Retention.Microseconds(), p.cfg.PurgeBatch}
	if after != nil {
		args = append(args, t.IDArg(*after))
	}
	var c chunk
	var last, young string
	err := p.pool.QueryRow(ctx, purgeSQL(t.Outbox, after != nil, dry), args...).Scan(&c.looked, &c.young, &c.purged, &last, &young)
	if err != nil {
		return c, fmt.Errorf("delete published rows: %w", err)
	}
	if !dry {
		p.metrics.purged.Add(float64(c.purged))
	}
	if c.last, err = t.optionalID(last); err != nil {
		return c, err
	}
	if c.last == nil {
		c.last = after
	}
	c.firstYoung, err = t.optionalID(young)
	return c, err
}

// optionalID reads an id as purgeSQL returns it; nil: "".
func (t *purged) optionalID(text string) (*event.RowID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := t.ParseID(text)
	return &id, err
}

// sweepDead deletes the DEAD rows that are due.
func (p *Purger) sweepDead(ctx context.Context, t *purged, s *sweep) error {
	for {
		var n int64
		err := p.pool.QueryRow(ctx, purgeDeadSQL(t.Outbox, s.dry), p.cfg.DeadRetention.Microseconds(), p.cfg.PurgeBatch).Scan(&n)
		if err != nil {
			return fmt.Errorf("delete dead rows: %w", err)
		}
		s.dead += n
		s.report(t)
		if s.dry {
			return nil
		}
		p.metrics.purged.Add(float64(n))
		if n < int64(p.cfg.PurgeBatch) {
			return nil
		}
	}
}
