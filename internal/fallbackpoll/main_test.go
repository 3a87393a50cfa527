package fallbackpoll

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// fixture is a database with outbox tables and a pool.
type fixture struct {
	*pgtest.DB
	pool   *pgxpool.Pool
	tables []*table.Outbox
}

// newFixture makes outbox tables of the default form.
func newFixture(t *testing.T, names ...string) *fixture {
	t.Helper()
	f := &fixture{DB: pgtest.Database(t)}
	f.pool = f.Pool(t)
	for _, name := range names {
		if err := table.Init(t.Context(), f.Connect(t), table.DDLOptions{Table: name}); err != nil {
			t.Fatal(err)
		}
		f.resolve(t, table.Spec{Table: name})
	}
	return f
}

func (f *fixture) resolve(t *testing.T, spec table.Spec) *table.Outbox {
	t.Helper()
	o, err := table.Resolve(t.Context(), f.pool, int32(len(f.tables)), spec)
	if err != nil {
		t.Fatal(err)
	}
	f.tables = append(f.tables, o)
	return o
}

func (f *fixture) poller(t *testing.T, cfg Config) *Poller {
	p := New(cfg, f.pool, f.tables, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	t.Cleanup(func() { p.EndPass(context.Background()) })
	return p
}

// pages reads a whole pass.
func pages(t *testing.T, p *Poller) []event.Page {
	t.Helper()
	return pass(t, p, false)
}

func pass(t *testing.T, p *Poller, whole bool) []event.Page {
	t.Helper()
	if _, err := p.BeginPass(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	return rest(t, p)
}

// rest reads what is left of a pass.
func rest(t *testing.T, p *Poller) []event.Page {
	t.Helper()
	var all []event.Page
	for {
		page := next(t, p)
		all = append(all, page)
		if page.Last {
			return all
		}
		if len(page.Events) == 0 {
			t.Fatal("an empty page that is not the last")
		}
	}
}

func next(t *testing.T, p *Poller) event.Page {
	t.Helper()
	page, err := p.NextPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func ids(pages ...event.Page) []string {
	all := []string{}
	for _, page := range pages {
		for _, e := range page.Events {
			all = append(all, e.ID.String())
		}
	}
	return all
}

// insert adds n rows to a table of the default form.
func (f *fixture) insert(t *testing.T, into string, n int) {
	t.Helper()
	f.Exec(t, fmt.Sprintf(`INSERT INTO %s (topic, key, payload) SELECT 't', 'k' || g %% 7, to_json(g) FROM generate_series(1, %d) g`, into, n))
}

// begin opens a transaction of its own.
func (f *fixture) begin(t *testing.T) (pgx.Tx, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	tx, err := f.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return tx, ctx
}
