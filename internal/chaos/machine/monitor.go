package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/chaos/history"
)

const (
	look     = 50 * time.Millisecond // between two looks at an instance
	fresh    = 500 * time.Millisecond
	twoHeads = 3 // looks in a row at which two instances were active
)

// seen is what an instance said of itself when it was last asked.
type seen struct {
	at     time.Time // zero: it doesn't answer
	Leader bool      `json:"leader"`
	Mode   string    `json:"mode"`
	Reason string    `json:"mode_reason"`
	Sink   struct {
		Up     bool   `json:"up"`
		Reason string `json:"reason"`
	} `json:"sink"`
	Stream struct {
		Up     bool   `json:"up"`
		Reason string `json:"reason"`
	} `json:"stream"`
}

func (s seen) answers() bool { return time.Since(s.at) < fresh }
func (s seen) live() bool    { return s.answers() && s.Leader && s.Mode == "LIVE" && s.Sink.Up }

func (s seen) String() string {
	if !s.answers() {
		return "doesn't answer"
	}
	return fmt.Sprintf("leader %v, mode %s (%s), sink up %v %s, stream up %v %s", s.Leader, s.Mode, s.Reason, s.Sink.Up, s.Sink.Reason, s.Stream.Up, s.Stream.Reason)
}

// monitor asks every instance again and again what it is doing, until ctx ends.
func (w *world) monitor(ctx context.Context) {
	client := &http.Client{Timeout: fresh}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for _, i := range w.instances {
		all.Go(func() {
			for pause(ctx, look) {
				i.look(client)
			}
		})
	}
	for heads := 0; pause(ctx, look); {
		leaders := 0
		for _, i := range w.instances {
			if s := i.state(); s.answers() && s.Leader {
				leaders++
			}
		}
		if heads++; leaders < 2 {
			heads = 0
		}
		if heads == twoHeads*int(fresh/look) {
			w.report(history.Process, "%d instances say that they are active", leaders)
		}
	}
	all.Wait()
}

func (i *instance) look(client *http.Client) {
	if code, crashed := i.crashed(); crashed {
		i.world.report(history.Process, "instance %d ended by itself: %s", i.n, code)
	}
	var s seen
	resp, err := client.Get("http://" + i.place.Addr() + "/status")
	if err == nil {
		err = json.NewDecoder(resp.Body).Decode(&s)
		_ = resp.Body.Close()
	}
	if err != nil {
		s = seen{}
	} else {
		s.at = time.Now()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = s
}

func (i *instance) state() seen {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seen
}

// active is the instance that leads, the first one when none does.
func (w *world) active() *instance {
	for _, i := range w.instances {
		if s := i.state(); s.answers() && s.Leader {
			return i
		}
	}
	return w.instances[0]
}

// leads waits until another instance than this one is active, and returns it; nil when ctx ends before.
func (w *world) successor(ctx context.Context, of *instance) *instance {
	for {
		for _, i := range w.instances {
			if s := i.state(); i != of && s.answers() && s.Leader {
				return i
			}
		}
		if !pause(ctx, look/5) {
			return nil
		}
	}
}

func (w *world) live() bool {
	for _, i := range w.instances {
		if i.state().live() {
			return true
		}
	}
	return false
}
