package lifecycle

import "time"

// Config are the settings of a Lifecycle.
type Config struct {
	// MarkBatch is the number of rows in one statement; 1000 when 0. Beyond that nothing is gained.
	MarkBatch int
	// MarkInterval is the least time between two statements that are not full; 20 ms when 0. A longer one makes fewer
	// commits, and lets a crash repeat more.
	MarkInterval time.Duration
	// Retention is how long PUBLISHED rows are kept. 0: a published row is deleted instead of updated.
	Retention time.Duration
	// DeadRetention is how long DEAD rows are kept. 0: until someone decides.
	DeadRetention time.Duration
	// PurgeInterval is the time between two purges; a minute when 0.
	PurgeInterval time.Duration
	// PurgeBatch is the number of rows that one transaction of a purge looks at; 1000 when 0.
	PurgeBatch int
	// Retry says when a failed row is tried again, and how often.
	Retry Retry
	// StopTimeout is how long Run, when its context has ended, goes on trying to write what was handed in; 10 s when 0.
	StopTimeout time.Duration
}

func (c Config) withDefaults() Config {
	def(&c.MarkBatch, 1000)
	def(&c.MarkInterval, 20*time.Millisecond)
	def(&c.PurgeInterval, time.Minute)
	def(&c.PurgeBatch, 1000)
	def(&c.StopTimeout, 10*time.Second)
	c.Retry = c.Retry.withDefaults()
	return c
}

// def sets a value that isn't positive to its default.
func def[T int | time.Duration | float64](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}
