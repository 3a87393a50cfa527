package machine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
)

func networkFaults() []fault {
	return []fault{
		{kind: "connections to Postgres cut", inject: toPostgres(cut(0, 3*time.Second))},
		{kind: "connections to Postgres stalled", inject: toPostgres(stall(time.Second, 6*time.Second))},
		{kind: "connections to Postgres slow", inject: toPostgres(slowDown(3*time.Second, 6*time.Second))},
		{kind: "active relay cut off from Postgres", inject: cutOffActive, fit: several, long: true},
		{kind: "connections of writers cut", inject: toGate(cut(0, time.Second))},
		{kind: "connections to Kafka cut", inject: toKafka(cut(0, 3*time.Second))},
		{kind: "connections to Kafka stalled", inject: toKafka(stall(time.Second, 8*time.Second))},
		{kind: "connections to Kafka slow", inject: toKafka(slowDown(3*time.Second, 6*time.Second))},
	}
}

// disturbance does something to proxies for a while.
type disturbance func(ctx context.Context, rng *rand.Rand, proxies ...*chaos.Proxy)

// cut resets connections, and refuses new ones for a while.
func cut(least, most time.Duration) disturbance {
	return func(ctx context.Context, rng *rand.Rand, proxies ...*chaos.Proxy) {
		if away := between(rng, least, most); rng.IntN(2) == 0 {
			for _, p := range proxies {
				p.Cut()
			}
			pause(ctx, away)
			return
		}
		for range 1 + rng.IntN(5) {
			for _, p := range proxies {
				p.CloseAll()
			}
			pause(ctx, between(rng, 0, 400*time.Millisecond))
		}
	}
}

// stall lets connections be silent in one direction or both.
func stall(least, most time.Duration) disturbance {
	return func(ctx context.Context, rng *rand.Rand, proxies ...*chaos.Proxy) {
		direction := anyDirection(rng)
		for _, p := range proxies {
			p.Stall(direction)
		}
		pause(ctx, between(rng, least, most))
	}
}

// slowDown adds latency, or takes bandwidth, in one direction or both.
func slowDown(least, most time.Duration) disturbance {
	return func(ctx context.Context, rng *rand.Rand, proxies ...*chaos.Proxy) {
		late, limit := between(rng, 50*time.Millisecond, 400*time.Millisecond), 20<<10+rng.IntN(60<<10)
		if rng.IntN(2) == 0 {
			limit = 0
		} else {
			late = 0
		}
		direction := anyDirection(rng)
		for _, p := range proxies {
			p.Confine(direction)
			p.Delay(late)
			p.Limit(limit)
		}
		pause(ctx, between(rng, least, most))
	}
}

func anyDirection(rng *rand.Rand) chaos.Direction {
	return []chaos.Direction{chaos.ToServer, chaos.ToClient, chaos.Both}[rng.IntN(3)]
}

// during disturbs proxies and heals them.
func during(ctx context.Context, d disturbance, rng *rand.Rand, proxies ...*chaos.Proxy) (err error) {
	d(ctx, rng, proxies...)
	for _, p := range proxies {
		if failed := heal(p); failed != nil {
			err = failed
		}
	}
	return err
}

func toPostgres(d disturbance) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		var all []*chaos.Proxy
		for _, i := range w.instances {
			all = append(all, i.proxy)
		}
		return during(ctx, d, rng, all...)
	}
}

func toGate(d disturbance) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error { return during(ctx, d, rng, w.gate) }
}

// toKafka disturbs the way to one broker, or to all.
func toKafka(d disturbance) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		some := w.bed.proxies
		if n := rng.IntN(2 * len(some)); n < len(some) {
			some = some[n : n+1]
		}
		return during(ctx, d, rng, some...)
	}
}

// cutOffActive cuts the active relay off, or makes its connections silent, until another one has taken over.
func cutOffActive(ctx context.Context, w *world, rng *rand.Rand) error {
	i := w.active()
	if rng.IntN(2) == 0 {
		i.proxy.Cut()
	} else {
		i.proxy.Stall(chaos.Both)
	}
	wctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if w.successor(wctx, i) == nil && ctx.Err() == nil {
		return errors.New("nobody took over from a relay that was cut off")
	}
	pause(ctx, between(rng, 0, 2*time.Second))
	return heal(i.proxy)
}
