package machine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

// telling are the lines of the relay's log that say that something happened which may repeat what was in flight: see the
// table of duplicates in docs/delivery-semantics.md. Each raises the bound of the window in which it was written, as
// often as it was written: while the brokers are kept from answering, the producer is renewed more than once.
var telling = map[string]string{
	"the lock is lost":            "the lease was lost",
	"kafka is unavailable":        "the brokers were lost",
	"kafka gets another producer": "the producer was renewed",
	"stop timeout is over":        "the stop took too long",
	"stopped before all outcomes were written, what was published will be published again": "the stop took too long",
}

// lateRepeats is how long after such a line what was in flight may come again: the brokers must be there again first.
const lateRepeats = 10 * time.Second

// evidence reads the logs of all relays that ran: what explains duplicates, and what is a finding by itself.
func (w *world) evidence(windows []history.Window) error {
	for _, i := range w.instances {
		for _, f := range i.logs {
			if err := w.readLog(f, windows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) readLog(f logFile, windows []history.Window) error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte("DATA RACE")) || bytes.Contains(text, []byte("panic: ")) {
		w.report(history.Process, "a data race or a panic: see %s", f.path)
	}
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var line struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
		}
		if json.Unmarshal(scan.Bytes(), &line) != nil {
			continue // a trace of the runtime
		}
		if why, ok := telling[line.Msg]; ok {
			raise(windows, line.Time.Add(-f.skew), why)
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("read %s: %w", f.path, err)
	}
	return nil
}

// raise allows a repeat in the window at t, and in those that begin so soon that what is sent again may fall into them.
func raise(windows []history.Window, t time.Time, why string) {
	for n := range windows {
		over := n+1 < len(windows) && !t.Before(windows[n+1].Began)
		if win := &windows[n]; !over && !t.Before(win.Began.Add(-lateRepeats)) {
			win.Repeats++
			win.Why = append(win.Why, why)
		}
	}
}
