package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// shop is an application as the relay's users have one: it writes an order and the event it owes the world in one
// transaction, and knows nothing of a broker.
type shop struct {
	conn                  *pgx.Conn
	rate                  int
	committed, rolledBack atomic.Int64
}

func openShop(ctx context.Context, dsn string, rate int) (*shop, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	_, err = conn.Exec(ctx, `CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, cents integer NOT NULL)`)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the shop: %w", err), conn.Close(ctx))
	}
	return &shop{conn: conn, rate: rate}, nil
}

func (s *shop) close() { _ = s.conn.Close(context.Background()) } // the server ends with the demo

// run writes orders until ctx ends.
func (s *shop) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second / time.Duration(s.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// An order that was begun is finished: else nobody knew whether it was committed.
		if err := s.order(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("write an order: %w", err)
		}
	}
}

var errCardDeclined = errors.New("the card is declined")

func (s *shop) order(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		customer, cents := fmt.Sprintf("customer-%d", rand.IntN(20)), 100+rand.IntN(9900) //nolint:gosec // a demo's prices
		var id int64
		if err := tx.QueryRow(ctx, `INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id`, customer, cents).Scan(&id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO outbox (topic, key, event_type, payload) VALUES ('orders', $1, 'order_placed',
			json_build_object('order', $2::bigint, 'customer', $1::text, 'cents', $3::int))`, customer, id, cents)
		if err == nil && rand.IntN(10) == 0 { //nolint:gosec // a demo's luck
			return errCardDeclined
		}
		return err
	})
	if errors.Is(err, errCardDeclined) {
		s.rolledBack.Add(1)
		return nil
	}
	if err == nil {
		s.committed.Add(1)
	}
	return err
}

// witness is a sink that notes what another sink has acknowledged, and how long after the commit.
type witness struct {
	sink.Sink

	mu    sync.Mutex
	times []time.Duration
	seen  map[event.RowID]bool
	again int64
}

func newWitness(s sink.Sink) *witness { return &witness{Sink: s, seen: map[event.RowID]bool{}} }

// Publish implements sink.Sink.
func (w *witness) Publish(ctx context.Context, events []*event.Event) []error {
	errs := w.Sink.Publish(ctx, events)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range events {
		switch {
		case errs[i] != nil:
		case w.seen[e.ID]:
			w.again++
		default:
			w.seen[e.ID] = true
			w.times = append(w.times, e.Lag+time.Since(e.ReceivedAt))
		}
	}
	return errs
}

// latencies are from commit to acknowledgement.
type latencies struct {
	delivered, duplicates int64
	p50, p99, max         time.Duration
}

func (w *witness) latency() latencies {
	w.mu.Lock()
	sorted := slices.Clone(w.times)
	n := latencies{delivered: int64(len(sorted)), duplicates: w.again}
	w.mu.Unlock()
	if len(sorted) == 0 {
		return n
	}
	slices.Sort(sorted)
	at := func(p int) time.Duration {
		return sorted[min(len(sorted)*p/100, len(sorted)-1)].Round(10 * time.Microsecond)
	}
	n.p50, n.p99, n.max = at(50), at(99), at(100)
	return n
}
