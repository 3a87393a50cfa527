package machine

import (
	"context"
	"math/rand/v2"
	"time"
)

// operate is what people do meanwhile: purge, and retry DEAD rows by command. A command may fail while its server is
// away; that is no finding.
func (w *world) operate(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.options.Seed, 1<<32))
	for pause(ctx, 3*time.Second+time.Duration(rng.Int64N(int64(4*time.Second)))) {
		i := w.instances[rng.IntN(len(w.instances))]
		switch rng.IntN(3) {
		case 0:
			_ = i.command(ctx, nil, "purge")
		case 1:
			_ = i.command(ctx, nil, "dead", "retry", "--topic", w.topics.volatile)
		default:
			w.retrySome(ctx, i, rng)
		}
	}
}

// retrySome retries a few rows that will die again, and rows of topics that were late.
func (w *world) retrySome(ctx context.Context, i *instance, rng *rand.Rand) {
	for _, topic := range w.topics.allLate() {
		_ = i.command(ctx, nil, "dead", "retry", "--topic", topic)
	}
	table := tables[rng.IntN(len(tables))]
	var ids []string
	if err := w.pool.QueryRow(ctx, someDead(table), invalid).Scan(&ids); err == nil && len(ids) > 0 {
		_ = i.command(ctx, nil, append([]string{"dead", "retry", "--table", "public." + table}, ids...)...)
	}
}

func (t *topics) allLate() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.made...)
}
