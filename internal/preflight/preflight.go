// Package preflight holds the form in which the parts of the relay report what a look at their surroundings found:
// the database, the outbox tables, the slot, the sink. The check command prints findings, readiness uses them.
//
// Like package event it is a floor of words: no I/O, no import of another package of this module.
package preflight

// Severity ranks a finding.
type Severity uint8

const (
	// OK: looked at, and in order.
	OK Severity = iota
	// Note: worth knowing, needs nothing done.
	Note
	// Warning: the relay runs, but slower or with less safety than it could.
	Warning
	// Failure: the relay can't run like this.
	Failure
)

// String is the word that the check command prints, and its JSON value.
func (s Severity) String() string {
	return [...]string{"ok", "note", "warning", "failure"}[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	// Subject is what was looked at: "wal_level", "slot cdc_relay", "table public.outbox".
	Subject string `json:"subject"`
	// Detail is what was found and what it means, in one or two sentences.
	Detail string `json:"detail"`
	// Remedy is what to do: SQL ending in a semicolon, or a setting with its value. Empty when nothing is to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Worst is the highest severity among findings.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}
