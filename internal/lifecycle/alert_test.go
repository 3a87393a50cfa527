package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// receiver is a webhook's server that keeps what it gets.
type receiver struct {
	*httptest.Server
	status atomic.Int64

	mu     sync.Mutex
	bodies [][]byte
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.status.Store(http.StatusOK)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %q: %v", req.Method, req.Header, err)
		}
		if req.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
			return
		}
		r.mu.Lock()
		r.bodies = append(r.bodies, body)
		r.mu.Unlock()
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(int(r.status.Load()))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) alerts(t *testing.T) []alert {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]alert, len(r.bodies))
	for i, body := range r.bodies {
		if err := json.Unmarshal(body, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// alerting runs an Alerter on the fixture's tables.
func (f *fixture) alerting(t *testing.T, cfg AlertConfig, log *slog.Logger) (a *Alerter, stop func()) {
	t.Helper()
	a = NewAlerter(cfg, NewDead(f.pool, f.tables).Count, f.metrics, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return a, stop
}

func TestCase25_AlertComesAtOnceAndAgainWhileDeadRowsRemain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	all := f.insert(t, 3)
	hook := newReceiver(t)
	a, _ := f.alerting(t, AlertConfig{URL: hook.URL, GroupInterval: time.Hour, RepeatInterval: 30 * time.Millisecond}, slog.New(slog.DiscardHandler))
	r := f.run(t, Config{}, a)
	r.Fail(all[1], errPermanent)
	pgtest.Eventually(t, patience, "the first alert", func() bool { return len(hook.alerts(t)) == 1 })
	got := hook.alerts(t)[0]
	if got.New != 1 || got.Reminder || *got.Dead != 1 || got.Reasons["message_too_large"] != 1 ||
		len(got.Samples) != 1 || got.Samples[0].Table != "public.outbox" || got.Samples[0].ID != "2" || got.Samples[0].Topic != "t" {
		t.Errorf("got %+v", got)
	}
	// What dies within the hour waits for its end, and so does a reminder: no two alerts are closer than that.
	r.Fail(all[2], errPermanent)
	r.want(t, event.Dead, all[2])
	f.wantIDs(t, "DEAD", 2, 3)
	if n := len(hook.alerts(t)); n != 1 {
		t.Errorf("%d alerts", n)
	}
}

func TestCase25_RemindersEndWhenNoRowIsDeadAnyMore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	f.insert(t, 2)
	f.Exec(t, `UPDATE outbox SET status = 'DEAD'`)
	hook := newReceiver(t)
	f.alerting(t, AlertConfig{URL: hook.URL, GroupInterval: time.Millisecond, RepeatInterval: 10 * time.Millisecond}, slog.New(slog.DiscardHandler))
	pgtest.Eventually(t, patience, "reminders of what an earlier run has left", func() bool { return len(hook.alerts(t)) >= 3 })
	for _, got := range hook.alerts(t) {
		if !got.Reminder || got.New != 0 || *got.Dead != 2 {
			t.Errorf("got %+v", got)
		}
	}
	if _, err := NewDead(f.pool, f.tables).Retry(t.Context(), Filter{}, Order{}); err != nil {
		t.Fatal(err)
	}
	var before int
	pgtest.Eventually(t, patience, "the reminders end", func() bool {
		last := before
		before = len(hook.alerts(t))
		return last == before
	})
}

func TestAlertsAreKeptWhileTheReceiverIsDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	hook := newReceiver(t)
	var log bytes.Buffer
	secret := strings.Replace(hook.URL, "http://", "http://user:pa55word@", 1) + "/services/s3cret"
	a, stop := f.alerting(t, AlertConfig{URL: secret}, slog.New(slog.NewTextHandler(&log, nil)))
	for _, status := range []int64{500, 404, 307} { // a redirect isn't followed either
		hook.status.Store(status)
		before := f.metric(t, "alerts_sent_total", "error")
		a.Dead([]Deceased{{Table: "public.outbox", ID: "1", Reason: "a"}})
		pgtest.Eventually(t, patience, "an alert fails", func() bool { return f.metric(t, "alerts_sent_total", "error") > before })
	}
	hook.status.Store(200)
	pgtest.Eventually(t, patience, "the alert is sent", func() bool { return f.metric(t, "alerts_sent_total", "ok") == 1 })
	all := hook.alerts(t)
	if got := all[len(all)-1]; got.New != 3 || got.Reasons["a"] != 3 || len(got.Samples) != 3 {
		t.Errorf("got %+v", got)
	}
	hook.Close()
	a.Dead([]Deceased{{ID: "2"}})
	stop()
	if strings.Contains(log.String(), "pa55word") || strings.Contains(log.String(), "s3cret") || log.Len() == 0 {
		t.Errorf("the log: %s", log.String())
	}
}

func TestG10_StopTellsWhatIsUntold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "outbox")
	hook := newReceiver(t)
	a, stop := f.alerting(t, AlertConfig{URL: hook.URL}, slog.New(slog.DiscardHandler))
	a.Dead([]Deceased{{ID: "1"}})
	pgtest.Eventually(t, patience, "the first alert", func() bool { return len(hook.alerts(t)) == 1 })
	a.Dead([]Deceased{{ID: "2"}}) // within the minute
	stop()
	if all := hook.alerts(t); len(all) != 2 || all[1].Samples[0].ID != "2" {
		t.Errorf("got %+v", all)
	}
}

// The transport is the one piece that is not real here: time is.
func TestAlertsAreGroupedByTheMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		type sent struct {
			after time.Duration
			alert
		}
		var all []sent
		var remaining atomic.Int64
		remaining.Store(1)
		a := NewAlerter(AlertConfig{URL: "http://example.test/hook"}, func(context.Context) (int64, error) { return remaining.Load(), nil },
			NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		a.client.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			s := sent{after: time.Since(began)}
			if err := json.NewDecoder(req.Body).Decode(&s.alert); err != nil {
				t.Error(err)
			}
			all = append(all, s)
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(10 * time.Second)
		for i := range 90 { // one a second
			a.Dead([]Deceased{{ID: "x", Reason: []string{"a", "b"}[i%2]}})
			time.Sleep(time.Second)
		}
		time.Sleep(9 * time.Hour)
		remaining.Store(0)
		time.Sleep(100 * time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []struct {
			after   time.Duration
			new     int64
			samples int
		}{
			{10 * time.Second, 1, 1}, {70 * time.Second, 59, 10}, {130 * time.Second, 30, 10},
			{130*time.Second + 4*time.Hour, 0, 0}, {130*time.Second + 8*time.Hour, 0, 0},
		}
		if len(all) != len(want) {
			t.Fatalf("got %+v", all)
		}
		for i, w := range want {
			if d := all[i].after - w.after; d.Abs() > time.Second || all[i].New > w.new+1 || all[i].New < w.new-1 || len(all[i].Samples) != w.samples || all[i].Reminder != (w.new == 0) {
				t.Errorf("alert %d: got %v %+v, want %+v", i, all[i].after, all[i].alert, w)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestTemplates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := news{}
	n.add(news{rows: 12, reasons: map[string]int64{"b": 2, "a": 10}, samples: []Deceased{{"public.outbox", "7", "uuid", "<!channel>&", "a"}}})
	for name, want := range map[string]string{
		"generic": `{"alert":"dead_rows","summary":"cdc-relay: 12 outbox rows became DEAD (a: 10, b: 2); 20 are DEAD now. See: cdc-relay dead list",` +
			`"reminder":false,"new_dead_rows":12,"dead_rows":20,"reasons":{"a":10,"b":2},"samples":[{"table":"public.outbox","id":"7",` +
			`"message_id":"uuid","topic":"<!channel>&","reason":"a"}],"at":"2026-01-02T03:04:05Z"}`,
		"slack": `{"text":"cdc-relay: 12 outbox rows became DEAD (a: 10, b: 2); 20 are DEAD now. See: cdc-relay dead list` +
			`\n• public.outbox id 7, topic &lt;!channel&gt;&amp;: a\n… and 11 more"}`,
		"alertmanager": `[{"labels":{"alertname":"CDCRelayDeadRows","service":"cdc-relay","severity":"critical"},"annotations":` +
			`{"description":"public.outbox id 7, topic <!channel>&: a","summary":"cdc-relay: 12 outbox rows became DEAD (a: 10, b: 2); 20 are DEAD now. See: cdc-relay dead list"},` +
			`"endsAt":"2026-01-02T09:04:05Z"}]`,
	} {
		got, err := templates[name](newAlert(n, 20, now, 4*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
			t.Fatal(err)
		}
		x, _ := json.MarshalIndent(a, "", " ")
		y, _ := json.MarshalIndent(b, "", " ")
		if !bytes.Equal(x, y) {
			t.Errorf("%s:\n%s\nwant\n%s", name, x, y)
		}
	}
	if got := newAlert(news{}, 3, now, time.Hour); !got.Reminder || got.Summary != "cdc-relay: 3 outbox rows are still DEAD and wait for a decision. See: cdc-relay dead list" {
		t.Errorf("got %+v", got)
	}
}

func TestAlertSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for _, ok := range []AlertConfig{{}, {URL: "https://h/p", Template: "slack"}, {URL: "http://u:p@h:1"}} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for _, bad := range []AlertConfig{{URL: "h/p"}, {URL: "ftp://h"}, {URL: "http://"}, {URL: "http://%zz"}, {Template: "teams"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
