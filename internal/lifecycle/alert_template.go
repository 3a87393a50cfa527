package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// alert is what is told, and as JSON the body of the generic template.
type alert struct {
	Alert    string           `json:"alert"` // always "dead_rows"
	Summary  string           `json:"summary"`
	Reminder bool             `json:"reminder"` // nothing new died, but DEAD rows remain
	New      int64            `json:"new_dead_rows"`
	Dead     *int64           `json:"dead_rows"` // in the tables; null when they could not be read
	Reasons  map[string]int64 `json:"reasons"`   // of the new ones
	Samples  []Deceased       `json:"samples"`
	At       time.Time        `json:"at"`

	repeat time.Duration
}

func newAlert(n news, remaining int64, now time.Time, repeat time.Duration) alert {
	a := alert{
		Alert: "dead_rows", Reminder: n.rows == 0, New: n.rows, Reasons: n.reasons, Samples: n.samples,
		At: now.UTC().Truncate(time.Millisecond), repeat: repeat,
	}
	if a.Reasons == nil {
		a.Reasons = map[string]int64{}
	}
	if a.Samples == nil {
		a.Samples = []Deceased{}
	}
	if remaining >= 0 {
		a.Dead = &remaining
	}
	a.Summary = a.summary()
	return a
}

func (a alert) summary() string {
	var b strings.Builder
	if a.Reminder {
		fmt.Fprintf(&b, "cdc-relay: %d outbox rows are still DEAD and wait for a decision", *a.Dead)
	} else {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(a.Reasons)) {
			reasons = append(reasons, fmt.Sprintf("%s: %d", reason, a.Reasons[reason]))
		}
		fmt.Fprintf(&b, "cdc-relay: %d outbox rows became DEAD (%s)", a.New, strings.Join(reasons, ", "))
		if a.Dead != nil {
			fmt.Fprintf(&b, "; %d are DEAD now", *a.Dead)
		}
	}
	b.WriteString(". See: cdc-relay dead list")
	return b.String()
}

// templates are the forms of an alert's body.
var templates = map[string]func(alert) ([]byte, error){
	"generic":      func(a alert) ([]byte, error) { return json.Marshal(a) },
	"slack":        slack,
	"alertmanager": alertmanager,
}

// slack is the body of an incoming webhook. What comes from the tables is escaped, or a topic could mention people.
func slack(a alert) ([]byte, error) {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	var b strings.Builder
	b.WriteString(escape(a.Summary))
	for _, s := range a.Samples {
		fmt.Fprintf(&b, "\n• %s id %s, topic %s: %s", escape(s.Table), escape(s.ID), escape(s.Topic), escape(s.Reason))
	}
	if more := a.New - int64(len(a.Samples)); more > 0 {
		fmt.Fprintf(&b, "\n… and %d more", more)
	}
	return json.Marshal(struct {
		Text string `json:"text"`
	}{b.String()})
}

// alertmanager is the body of POST /api/v2/alerts: one alert, which resolves by itself unless a reminder follows. Its
// labels don't vary, so that alerts of one relay are one alert there.
func alertmanager(a alert) ([]byte, error) {
	var samples []string
	for _, s := range a.Samples {
		samples = append(samples, fmt.Sprintf("%s id %s, topic %s: %s", s.Table, s.ID, s.Topic, s.Reason))
	}
	type posted struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		EndsAt      time.Time         `json:"endsAt"`
	}
	return json.Marshal([]posted{{
		Labels:      map[string]string{"alertname": "CDCRelayDeadRows", "severity": "critical", "service": "cdc-relay"},
		Annotations: map[string]string{"summary": a.Summary, "description": strings.Join(samples, "\n")},
		EndsAt:      a.At.Add(a.repeat + a.repeat/2),
	}})
}
