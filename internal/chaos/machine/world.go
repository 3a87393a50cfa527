package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// The outbox tables; the diary is written by their triggers.
var tables = []string{"outbox", "outbox_b"}

// world is one run: everything between the bed and the schedule.
type world struct {
	options   Options
	bed       *Bed
	database  string
	pool      *pgxpool.Pool // straight to the server, for the harness itself
	gate      *chaos.Proxy  // before the server, for half of the writers
	instances []*instance
	topics    topics
	writers   []*writer
	canary    *writer        // of the schedule
	large     *writer        // of a fault
	side      sync.WaitGroup // what faults leave running for a while

	mu       sync.Mutex
	findings []history.Finding // of the harness itself
	windows  []history.Window
}

// topics are what the events go to.
type topics struct {
	steady   []string               // never touched
	volatile string                 // deleted and made again
	late     atomic.Pointer[string] // missing now, made in a moment, and then steady; nil: none

	mu        sync.Mutex
	made      []string // all that were late
	recreated time.Time
}

// invalid can't be the name of a topic: its events are DEAD at once.
const invalid = "not a topic!"

func newWorld(ctx context.Context, bed *Bed, o Options) (w *world, err error) {
	bed.databases++
	w = &world{options: o, bed: bed, database: fmt.Sprintf("chaos_%d", bed.databases)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.createDatabase(ctx); err != nil {
		return w, err
	}
	if w.gate, err = chaos.NewProxy(bed.postgres.Addr()); err != nil {
		return w, err
	}
	if err := w.createTopics(); err != nil {
		return w, err
	}
	for n := range o.Instances {
		i, err := w.newInstance(n)
		if err != nil {
			return w, err
		}
		w.instances = append(w.instances, i)
	}
	if err := w.createTables(ctx); err != nil {
		return w, err
	}
	w.hire()
	return w, nil
}

func (w *world) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.bed.postgres.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+w.database); err != nil {
		return err
	}
	w.pool, err = pgxpool.New(ctx, w.bed.postgres.DSN(w.database))
	return err
}

func (w *world) createTopics() error {
	t := &w.topics
	t.steady = []string{w.database + "-a", w.database + "-b"}
	t.volatile = w.database + "-volatile"
	return attempt(func(tb testbed.TB) {
		for n, name := range append([]string{t.volatile}, t.steady...) {
			w.bed.kafka.CreateTopic(tb, name, 2+2*n, topicConfig())
		}
	})
}

// makeTopic makes a topic of a fault, however often that takes: a broker may be away.
func (w *world) makeTopic(ctx context.Context, name string) error {
	for {
		err := attempt(func(tb testbed.TB) { w.bed.kafka.CreateTopic(tb, name, 2, topicConfig()) })
		if err == nil || errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// topicConfig has the broker tell the time of each append, and refuse what Poison makes.
func topicConfig() map[string]string {
	return map[string]string{"message.timestamp.type": "LogAppendTime", "max.message.bytes": fmt.Sprint(maxMessage)}
}

// createTables runs the relay's own init, once for each type of payload, and adds the diary.
func (w *world) createTables(ctx context.Context) error {
	first := w.instances[0]
	if err := first.command(ctx, []string{"CDC_RELAY_OUTBOXES=[{table: public.outbox}]"}, "init"); err != nil {
		return err
	}
	if err := first.command(ctx, nil, "init", "--payload-type", "jsonb"); err != nil {
		return err
	}
	for _, sql := range append([]string{createDiary, diaryFunction}, diaryTriggers()...) {
		if _, err := w.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(sql, "\n", 2)[0], err)
		}
	}
	return nil
}

// report notes a finding of the harness, charged to the present window.
func (w *world) report(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := history.Finding{Kind: kind, Window: len(w.windows) - 1, Text: fmt.Sprintf(format, args...)}
	w.findings = append(w.findings, f)
	fmt.Fprintf(w.options.Out, "  FINDING %s\n", f)
}

// mend makes the world whole: servers up, proxies clear, every instance running.
func (w *world) mend(ctx context.Context) error {
	err := errors.Join(w.bed.mend(ctx), heal(w.gate))
	for _, i := range w.instances {
		err = errors.Join(err, heal(i.proxy), i.mend())
	}
	return err
}

// slot is a name that no other run on the bed uses: slots belong to the whole server.
func (w *world) slot() string { return w.database }

func (w *world) close() (err error) {
	for _, i := range w.instances {
		err = errors.Join(err, i.close())
	}
	if w.pool != nil { // a slot that nobody reads keeps WAL for ever
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, dropTheSlot(ctx, w, nil))
	}
	w.side.Wait()
	if w.gate != nil {
		err = errors.Join(err, w.gate.Close())
	}
	if w.pool != nil {
		w.pool.Close()
	}
	return err
}

// pause waits, and reports whether it was not cut short.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
