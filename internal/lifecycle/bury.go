package lifecycle

import (
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// reasonExhausted is the reason of rows that died after their last attempt.
const reasonExhausted = "attempts_exhausted"

// loggedDead bounds the log lines for rows that died in one statement.
const loggedDead = 20

// buried counts, logs and alerts rows that have become DEAD.
func (l *Lifecycle) buried(q *queue, dead []outcome) {
	if len(dead) == 0 {
		return
	}
	news := make([]Deceased, len(dead))
	for i, o := range dead {
		reason := reasonExhausted
		if event.ClassOf(o.err) == event.Permanent {
			reason = event.ReasonOf(o.err)
		}
		news[i] = Deceased{
			Table: q.String(), ID: o.event.ID.String(), MessageID: event.FormatUUID(o.event.MessageID),
			Topic: o.event.Topic, Reason: reason,
		}
		l.metrics.dead.WithLabelValues(reason).Inc()
		if i < loggedDead {
			l.log.Error("a row is DEAD", "table", news[i].Table, "id", news[i].ID, "message_id", news[i].MessageID,
				"topic", news[i].Topic, "reason", reason)
		}
	}
	if n := len(dead) - loggedDead; n > 0 {
		l.log.Error("more rows are DEAD", "table", q.String(), "rows", n)
	}
	if l.alerter != nil {
		l.alerter.Dead(news)
	}
}
