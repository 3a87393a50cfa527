package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

func TestG6_AnInstanceKilledUnderLoadIsReplacedWithinSecondsAndRepeatsWithinTheBound(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	topic := kafkatest.TopicName(t)
	c.CreateTopic(t, topic, 6, nil)
	const maxInFlight = 1000
	db := pgtest.Database(t)
	s := settings{yaml: toKafka(c, fmt.Sprintf("dispatch: {max_in_flight: %d}", maxInFlight))}
	all := sites(t, db, s, s)
	for _, s := range all {
		s.launch(t)
	}
	active, others := awaitLeader(t, time.Minute, all...)
	active.awaitMode("LIVE")
	others[0].standsBy(time.Minute)
	w := write(t, db, topic, 1000, 50)
	const kills = 3
	for range kills {
		before := pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`)
		pgtest.Eventually(t, time.Minute, "deliveries between two kills", func() bool {
			return pgtest.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'`) > before+500
		})
		active.kill()
		next, _ := awaitLeader(t, 15*time.Second, others...)
		active.launch(t)
		active, others = next, []*site{active}
		others[0].standsBy(time.Minute)
	}
	w.finish()
	b := audit(t, db, c, topic)
	// One mark batch can be committed without the relay having learned of it.
	if bound := kills * (maxInFlight + 1000); b.duplicates > bound {
		t.Errorf("%d duplicates after %d kills, the bound is %d", b.duplicates, kills, bound)
	}
	if code := active.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	others[0].awaitMode("LIVE")
}
