package dispatch

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

var (
	seeds = flag.Int("seeds", 300, "runs of the hand-over's property test")
	steps = flag.Int("steps", 4000, "steps of each run, a millisecond each")
	first = flag.Int("first", 0, "first seed")
)

func optionsOf(seed int) options {
	return options{
		crashes: seed%2 == 0, drops: seed%3 != 0, fails: seed%5 != 0, outages: seed%7 != 0, restarts: seed%4 == 1,
		lags: seed%3 != 1, deletes: seed%4 < 2,
	}
}

// The hand-over keeps its promises under random interleavings: nothing is lost, nothing is published twice without a
// crash, the first publications of a key follow its order, nothing that was rolled back is published, the bounds hold,
// and the mode is LIVE again in the end. A finding names the seed: -first N -seeds 1 replays it.
func TestHandOverG1G2G3NothingLostNothingTwiceInOrder(t *testing.T) {
	total := map[string]int{}
	for seed := *first; seed < *first+*seeds; seed++ {
		opt := optionsOf(seed)
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 1)), opt)
		if err := w.run(*steps); err != nil {
			t.Errorf("seed %d %+v: %v", seed, opt, err)
			if t.Failed() && seed > *first+20 {
				break
			}
		}
		for k, v := range w.stats {
			total[k] += v
		}
		total["rows"] += len(w.rows)
		total["steps"] += w.step
	}
	if total["rescued"] > 0 {
		t.Errorf("%d rows were rescued: the stream and the poll left something between them", total["rescued"])
	}
	for _, k := range []string{"LIVE", "CATCHUP", "POLLING", "crashes", "restarts", "refused", "dead", "duplicates"} {
		if total[k] == 0 && *seeds >= 100 {
			t.Errorf("no run had any %s: the test does not reach what it is for", k)
		}
	}
	t.Log(fmt.Sprint(total))
}

// A stream that silently brings nothing for a while (its publication was dropped, say) loses nothing: the poll rescues.
func TestHandOverG1ABlindStreamLosesNothing(t *testing.T) {
	rescued := 0
	for seed := range max(*seeds/10, 1) {
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 2)), options{blind: true, fails: seed%2 == 0, outages: seed%3 == 0})
		if err := w.run(*steps); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		rescued += w.stats["rescued"]
	}
	if rescued == 0 {
		t.Error("nothing was rescued: the test does not reach what it is for")
	}
}

// rapid explores the same world and shrinks what it finds.
func TestHandOverByRapid(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opt := optionsOf(rapid.IntRange(0, 420).Draw(rt, "options"))
		if err := newWorld(drawn{rt}, opt).run(rapid.IntRange(1, 600).Draw(rt, "steps")); err != nil {
			rt.Fatal(err)
		}
	})
}

type drawn struct{ t *rapid.T }

func (d drawn) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "") }
