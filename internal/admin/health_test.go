package admin_test

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/admin"
)

// full is a Status with every field set.
func full() admin.Status {
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456000, time.UTC)
	return admin.Status{
		Version: "1.2.3", Instance: "shop-1:42", Now: at,
		Leader: true, LeaderSince: at.Add(-time.Hour),
		Mode: "LIVE", ModeReason: "the pass is over", ModeSince: at.Add(-time.Minute),
		Stream: admin.Stream{
			Enabled: true, Up: true, Reason: "since the takeover", ConfirmedLSN: "0/16B3748", LastMessageAgeSeconds: 0.25, Reconnects: 3,
		},
		Slot:     admin.Slot{Name: "cdc_relay", Active: true, WALStatus: "reserved", LagBytes: 4096, RetainedWALBytes: 16 << 20},
		Sink:     admin.Sink{Kind: "kafka", Up: true, Reason: "acknowledged"},
		InFlight: admin.InFlight{Events: 12, Bytes: 4800}, BlockedKeys: 2,
		Tables: []admin.Table{{
			Name: "public.outbox", Pending: 10001, PendingCapped: true, OldestPendingAgeSeconds: 90.5, Dead: 2, DeadCapped: true,
		}},
		Transitions: []admin.Transition{{At: at.Add(-time.Minute), From: "CATCHUP", To: "LIVE", Reason: "the pass is over"}},
		Throughput:  admin.Throughput{PublishedTotal: 123456, RatePerSecond: 987.5},
		Ready:       true, Reasons: []string{"none"}, Degraded: []string{"wal_level is replica"}, Stuck: "not at all",
	}
}

func TestG7_StatusJSONIsAsTheGoldenFileSays(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/status.json")
	if err != nil {
		t.Fatal(err)
	}
	got := start(t, "", full()).get("/status")
	if diff := cmp.Diff(string(want), got.body); diff != "" || got.code != 200 || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("code %d, type %q, -want +got:\n%s", got.code, got.header.Get("Content-Type"), diff)
	}
}

func TestStatusJSONHasEmptyListsAndLeavesOutUnknownTimes(t *testing.T) {
	t.Parallel()
	body := start(t, "", admin.Status{}).get("/status").body
	for _, want := range []string{`"tables": []`, `"transitions": []`, `"reasons": []`, `"degraded": []`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if strings.Contains(body, "leader_since") || strings.Contains(body, "mode_since") {
		t.Errorf("a time that nobody knows is told: %s", body)
	}
}

func TestG7_LivenessAndReadinessFollowTheStatus(t *testing.T) {
	t.Parallel()
	e := start(t, "", admin.Status{Ready: true, Degraded: []string{"no stream"}})
	expect := func(path string, code int, want string) {
		t.Helper()
		if got := e.get(path); got.code != code || strings.Join(strings.Fields(got.body), "") != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	expect("/livez", 200, `{"live":true,"reason":""}`)
	expect("/readyz", 200, `{"ready":true,"reasons":[],"degraded":["nostream"]}`)

	e.source.set(func(s *admin.Status) { *s = admin.Status{Reasons: []string{"postgres is away"}} })
	expect("/livez", 200, `{"live":true,"reason":""}`)
	expect("/readyz", 503, `{"ready":false,"reasons":["postgresisaway"],"degraded":[]}`)

	e.source.set(func(s *admin.Status) { s.Stuck = "dispatch" })
	expect("/livez", 503, `{"live":false,"reason":"dispatch"}`)
}

func TestMetricsShowTheGatherer(t *testing.T) {
	t.Parallel()
	if got := start(t, "", admin.Status{}).get("/metrics"); got.code != 200 || !strings.Contains(got.body, "\ncdc_relay_leader 0\n") {
		t.Errorf("%d %s", got.code, got.body)
	}
}

func TestUnknownPathsAndMethodsAreRefused(t *testing.T) {
	t.Parallel()
	e := start(t, token, admin.Status{})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/nothing", 404},
		{"GET", "/static/page.html", 404},
		{"POST", "/", 405},
		{"POST", "/status", 405},
		{"GET", "/dead/retry", 405},
		{"DELETE", "/dead", 405},
	} {
		if got := e.do(c.method, c.path, ""); got.code != c.code {
			t.Errorf("%s %s: %d instead of %d", c.method, c.path, got.code, c.code)
		}
	}
}

func TestG9_EveryAnswerHoldsTheBrowserToTheRules(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	for _, path := range []string{"/", "/status", "/readyz", "/metrics", "/login", "/static/page.js", "/static/page.css", "/nothing"} {
		h := e.get(path).header
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %q in %q", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %q", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestG10_StopLetsARequestUnderWayFinish(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	e.hold()
	got := make(chan answer, 1)
	go func() { got <- e.get("/status") }()
	<-e.source.asked
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	refused(t, e.base) // the stop has begun
	close(e.source.hold)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if a := <-got; a.code != 200 {
		t.Errorf("the request under way got %d", a.code)
	}
}

func TestG10_StopCutsARequestThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	e.hold()
	got := make(chan error, 1)
	go func() {
		resp, err := e.client.Get(e.base + "/status")
		if err == nil {
			resp.Body.Close()
		}
		got <- err
	}()
	<-e.source.asked
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("the request was answered")
	}
}

// hold makes every Status wait, once the first sample has been taken: the next one is far away.
func (e *endpoint) hold() {
	<-e.source.sampled
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	e.source.hold, e.source.asked = make(chan struct{}), make(chan struct{}, 1)
}

// refused waits until nobody listens any more.
func refused(t *testing.T, base string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			return
		}
		conn.Close()
	}
	t.Error("the server still listens")
}

func TestWithoutAnAddressThereIsNoEndpointAndRunWaits(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"", "off"} {
		s, err := admin.New(admin.Config{Listen: listen}, &source{}, prometheus.NewRegistry(), &actions{}, quiet())
		if err != nil || s.Addr() != nil {
			t.Fatalf("%q: %v, %v", listen, s.Addr(), err)
		}
		if err := s.Run(ended()); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAddressInUseNamesTheSetting(t *testing.T) {
	t.Parallel()
	addr := strings.TrimPrefix(start(t, "", admin.Status{}).base, "http://")
	_, err := admin.New(admin.Config{Listen: addr}, &source{}, prometheus.NewRegistry(), &actions{}, quiet())
	if err == nil || !strings.Contains(err.Error(), "http.listen") || !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
}

func TestATokenFileThatHoldsNoTokenIsAnError(t *testing.T) {
	t.Parallel()
	for _, name := range []string{file(t, " \n"), "/nowhere/token"} {
		_, err := admin.New(admin.Config{TokenFile: name}, &source{}, prometheus.NewRegistry(), &actions{}, quiet())
		if err == nil || !strings.Contains(err.Error(), "http.token_file") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeadIsAnsweredLikeGet(t *testing.T) {
	t.Parallel()
	if got := start(t, "", admin.Status{}).do(http.MethodHead, "/readyz", ""); got.code != 503 || got.body != "" {
		t.Errorf("%d %q", got.code, got.body)
	}
}
