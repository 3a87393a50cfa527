package dispatch

// Mode is how rows reach dispatch.
type Mode uint8

const (
	// Standby: another instance is active.
	Standby Mode = iota
	// CatchUp: the poller drains what is PENDING; what the stream brings is buffered.
	CatchUp
	// Live: the stream feeds dispatch, the poll watches.
	Live
	// Polling: there is no stream; the poll feeds dispatch.
	Polling
)

// Modes are all modes, for metrics that show each.
var Modes = [...]Mode{Standby, CatchUp, Live, Polling}

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String is the spelling of logs, metrics and status.
func (m Mode) String() string {
	return [...]string{"STANDBY", "CATCHUP", "LIVE", "POLLING"}[m]
}
