package config

import "time"

// Config is everything that can be set. The tags of a field say: yaml: its key; default: its default, spelled as in the
// file; oneof: the allowed words; min, max: its bounds, both included; secret: that its value must not be printed.
// A secret can be read from the file that the key with the suffix _file names.
type Config struct {
	Postgres     Postgres     `yaml:"postgres"`
	Outboxes     []Outbox     `yaml:"outboxes" default:"[{table: public.outbox}]"`
	Replication  Replication  `yaml:"replication"`
	FallbackPoll FallbackPoll `yaml:"fallback_poll"`
	Wake         Wake         `yaml:"wake"`
	Dispatch     Dispatch     `yaml:"dispatch"`
	Ordering     Ordering     `yaml:"ordering"`
	Retry        Retry        `yaml:"retry"`
	Lifecycle    Lifecycle    `yaml:"lifecycle"`
	Alert        Alert        `yaml:"alert"`
	Sink         Sink         `yaml:"sink"`
	HTTP         HTTP         `yaml:"http"`
	Log          Log          `yaml:"log"`
	Metrics      Metrics      `yaml:"metrics"`
	// ShutdownTimeout bounds how long a stop waits for what is in flight.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" default:"30s" min:"1ms"`
}

// Postgres says how to reach the database.
type Postgres struct {
	// DSN is a URL or keyword/value string as libpq takes it, with several hosts and target_session_attrs if wanted.
	DSN     string `yaml:"dsn" secret:"dsn"`
	DSNFile string `yaml:"dsn_file"`
	// MaxConns bounds the relay's own pool. The connections of replication, of the lock and of a poll's
	// snapshot come on top.
	MaxConns int `yaml:"max_conns" default:"4" min:"1" max:"1000"`
	// DirectDSN is for what needs a session of its own (replication, the lock) when DSN goes through a pooler. Empty: DSN.
	DirectDSN     string `yaml:"direct_dsn" secret:"dsn"`
	DirectDSNFile string `yaml:"direct_dsn_file"`
}

// Outbox is one outbox table.
type Outbox struct {
	// Table is table or schema.table, each part in double quotes where SQL would want that.
	Table string `yaml:"table"`
	// Preset is a known layout: the relay's own, or the table of Debezium's outbox event router.
	Preset string `yaml:"preset" default:"default" oneof:"default debezium"`
	// Columns maps the relay's column names to the table's where they differ. An empty name: the table has no such
	// column.
	Columns map[string]string `yaml:"columns"`
	// Statuses are the table's words for the states.
	Statuses Statuses `yaml:"statuses"`
	// Topic is a template over columns. Empty: the preset's.
	Topic string `yaml:"topic"`
	// OrderBy is the order of the poll. Empty: created_at when the id is a uuid, and otherwise id.
	OrderBy string `yaml:"order_by" oneof:"id created_at"`
}

// Statuses are the words in the status column.
type Statuses struct {
	Pending   string `yaml:"pending" default:"PENDING"`
	Published string `yaml:"published" default:"PUBLISHED"`
	Dead      string `yaml:"dead" default:"DEAD"`
}

// Replication is the stream, the fast path.
type Replication struct {
	Enabled     bool   `yaml:"enabled" default:"true"`
	Slot        string `yaml:"slot" default:"cdc_relay"`
	Publication string `yaml:"publication" default:"cdc_relay"`
	// Create lets the relay create the slot and the publication when they are missing, and recreate an invalidated slot.
	Create bool `yaml:"create" default:"true"`
	// Temporary slots retain no WAL while the relay is away.
	Temporary bool `yaml:"temporary" default:"false"`
	// Failover slots are taken over by standbys, from version 17 on.
	Failover bool `yaml:"failover" default:"false"`
	// SettleDelay is how long a commit may need from the WAL to being visible.
	SettleDelay time.Duration `yaml:"settle_delay" default:"1s" min:"0"`
}

// FallbackPoll is the poll, the authority.
type FallbackPoll struct {
	Interval time.Duration `yaml:"interval" default:"10s" min:"10ms"`
	// Batch is the number of rows of one page.
	Batch int `yaml:"batch" default:"1000" min:"1" max:"100000"`
}

// Wake makes the poll start early while there is no stream.
type Wake struct {
	Kind string `yaml:"kind" default:"none" oneof:"none notify redis"`
	// Channel is the name of the Postgres or Redis channel.
	Channel string `yaml:"channel" default:"outbox"`
	// RedisURL is the server of kind redis. Empty: the one of sink.redis.
	RedisURL     string `yaml:"redis_url" secret:"url"`
	RedisURLFile string `yaml:"redis_url_file"`
}

// Dispatch bounds what is on its way to the sink.
type Dispatch struct {
	// Lanes is the number of batches that can be under way at once.
	Lanes int `yaml:"lanes" default:"32" min:"1" max:"4096"`
	// MaxInFlight and MaxInFlightBytes bound the events in memory; what comes above waits in the table.
	MaxInFlight      int   `yaml:"max_in_flight" default:"10000" min:"1" max:"10000000"`
	MaxInFlightBytes Bytes `yaml:"max_in_flight_bytes" default:"64MiB" min:"64KiB"`
	// RampUp is how long the pace grows after an outage of the sink until it is the full one. 0: at once.
	RampUp time.Duration `yaml:"ramp_up" default:"10s" min:"0"`
}

// Ordering is the promise per key.
type Ordering struct {
	Mode string `yaml:"mode" default:"key" oneof:"key none"`
	// OnDead says what happens to a key whose event is DEAD: it goes on, or stays blocked until someone decides.
	OnDead string `yaml:"on_dead" default:"continue" oneof:"continue block"`
}

// Retry is the pause before an event is tried again, and how often.
type Retry struct {
	MaxAttempts int           `yaml:"max_attempts" default:"10" min:"1" max:"1000000"`
	Initial     time.Duration `yaml:"initial" default:"1s" min:"1ms"`
	Max         time.Duration `yaml:"max" default:"5m" min:"1ms"`
	Multiplier  float64       `yaml:"multiplier" default:"2" min:"1" max:"100"`
	// Jitter is the part of the pause that is random: 0.2 makes 10 s anything from 8 s to 12 s.
	Jitter float64 `yaml:"jitter" default:"0.2" min:"0" max:"1"`
}

// Lifecycle is what becomes of a row.
type Lifecycle struct {
	MarkBatch    int           `yaml:"mark_batch" default:"1000" min:"1" max:"100000"`
	MarkInterval time.Duration `yaml:"mark_interval" default:"20ms" min:"1ms"`
	// Retention is of PUBLISHED rows. 0: rows are deleted when published, without an UPDATE.
	Retention     time.Duration `yaml:"retention" default:"24h" min:"0"`
	PurgeInterval time.Duration `yaml:"purge_interval" default:"1m" min:"10ms"`
	PurgeBatch    int           `yaml:"purge_batch" default:"1000" min:"1" max:"100000"`
	// DeadRetention is of DEAD rows. 0: they are kept until someone decides.
	DeadRetention time.Duration `yaml:"dead_retention" default:"0" min:"0"`
}

// Alert tells a human about DEAD rows.
type Alert struct {
	Webhook Webhook `yaml:"webhook"`
	// RepeatInterval is the pause between alerts while DEAD rows remain.
	RepeatInterval time.Duration `yaml:"repeat_interval" default:"4h" min:"1s"`
}

// Webhook is where alerts go.
type Webhook struct {
	// URL is where alerts are posted to. Empty: none are.
	URL      string `yaml:"url" secret:"host"`
	URLFile  string `yaml:"url_file"`
	Template string `yaml:"template" default:"generic" oneof:"generic slack alertmanager"`
}

// HTTP is the admin endpoint.
type HTTP struct {
	// Listen is host:port. Empty or off: no endpoint.
	Listen string `yaml:"listen" default:"127.0.0.1:9180"`
	// TokenFile holds the token that actions need. Empty: no actions.
	TokenFile string `yaml:"token_file"`
}

// Log is the relay's own log.
type Log struct {
	Level  string `yaml:"level" default:"info" oneof:"debug info warn error"`
	Format string `yaml:"format" default:"text" oneof:"text json"`
}

// Metrics bounds the cost of metrics.
type Metrics struct {
	// MaxTopics is the number of values of the label topic; the rest is "other".
	MaxTopics int `yaml:"max_topics" default:"100" min:"1" max:"100000"`
}
