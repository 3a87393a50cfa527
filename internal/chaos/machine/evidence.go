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

// telling are the lines of the relay's log that say that something happened which may repeat events: see the table of
// duplicates in docs/delivery-semantics.md. Each raises the bound of the window in which it was written.
var telling = map[string]string{
	"lock session does not answer": "the lease was lost",
	"sink is not available":        "the broker was lost",
	"kafka is unavailable":         "the broker was lost",
	"stop timeout is over":         "the stop took too long",
	"stopped before all outcomes were written, what was published will be published again": "the stop took too long",
}

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

// raise raises the bound of the window at t; and of the next one, when that begins so soon that what is sent again may
// fall into it.
func raise(windows []history.Window, t time.Time, why string) {
	for n := range windows {
		win := &windows[n]
		ends := time.Now()
		if n+1 < len(windows) {
			ends = windows[n+1].Began
		}
		if !t.Before(ends) || t.Before(win.Began.Add(-10*time.Second)) {
			continue
		}
		if win.Bound < crashBound {
			win.Bound, win.Why = crashBound, why
		}
	}
}
