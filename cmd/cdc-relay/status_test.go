package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/admin"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// invoke runs one command line in this process.
func invoke(t *testing.T, env []string, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, app{in: strings.NewReader(""), out: &o, errOut: &e, env: env})
	return o.String(), e.String(), code
}

// running pretends to be the endpoint of a relay that does its work.
func running(t *testing.T) (listen string, status admin.Status) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	status = admin.Status{
		Version: "v1.2.3", Instance: "db-1", Now: now, Leader: true, LeaderSince: now.Add(-time.Hour),
		Mode: "LIVE", ModeReason: "a pass found nothing new", ModeSince: now.Add(-3 * time.Minute),
		Stream:   admin.Stream{Enabled: true, Up: true, ConfirmedLSN: "0/16B3748", LastMessageAgeSeconds: 0.25},
		Sink:     admin.Sink{Kind: "kafka", Up: true},
		InFlight: admin.InFlight{Events: 12, Bytes: 4096}, BlockedKeys: 1, Throughput: admin.Throughput{PublishedTotal: 42, RatePerSecond: 7},
		Ready: true, Degraded: []string{"table public.outbox has DEAD rows"},
		Tables: []admin.Table{{Name: "public.outbox", Pending: 99}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), status
}

func TestStatusShowsWhatTheRelaySaysWithFreshFiguresOfTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	listen, _ := running(t)
	env := []string{
		"CDC_RELAY_POSTGRES_DSN=" + db.DSN, "CDC_RELAY_REPLICATION_SLOT=" + db.Slot, "CDC_RELAY_REPLICATION_PUBLICATION=" + db.Publication,
		"CDC_RELAY_HTTP_LISTEN=" + listen,
	}
	if _, errOut, code := invoke(t, env, "init"); code != 0 {
		t.Fatal(errOut)
	}
	db.Exec(t, "INSERT INTO outbox (topic, status) VALUES ('t', 'PENDING'), ('t', 'DEAD'), ('t', 'DEAD')")
	// A slot that nobody reads has a lag; only its beginning is the same each time.
	out, errOut, code := invoke(t, env, "status")
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var got []string
	for line := range strings.Lines(out) {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), ", lag ")
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"relay db-1, version v1.2.3, active for 1h0m0s",
		"mode LIVE for 3m0s (a pass found nothing new)",
		"ready yes",
		"degraded table public.outbox has DEAD rows",
		"stream up, confirmed 0/16B3748, last message 300ms ago",
		"sink kafka, up",
		"in flight 12 events, 4.0 KiB; 1 blocked key",
		"published 42 since the start, 7.0 a second",
		"slot " + db.Slot + ": nobody uses it",
		"",
		"TABLE PENDING OLDEST PENDING PUBLISHED DEAD",
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if row := strings.Fields(out[strings.LastIndex(out, "public.outbox"):]); row[1] != "1" || row[4] != "2" {
		t.Errorf("the tables' figures are the relay's, want the database's: %q", row)
	}
}

func TestStatusInJSONIsTheRelaysOwn(t *testing.T) {
	t.Parallel()
	listen, want := running(t)
	// The database is away: what the relay knows is shown nevertheless.
	env := []string{"CDC_RELAY_POSTGRES_DSN=postgres://127.0.0.1:1/x", "CDC_RELAY_HTTP_LISTEN=" + listen}
	out, _, code := invoke(t, env, "status", "--json")
	var got admin.Status
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	want.Reasons, want.Transitions = []string{}, []admin.Transition{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	out, _, code = invoke(t, env, "status")
	if code != 0 || !strings.Contains(out, "database") || !strings.Contains(out, "connection refused") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestStatusSaysThatSomethingElseAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := askRelay(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err == nil || !strings.Contains(err.Error(), "is no relay: 404") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheRelayIsAskedOnThisMachine(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":9180": "127.0.0.1:9180", "0.0.0.0:9180": "127.0.0.1:9180", "[::]:9180": "127.0.0.1:9180", "10.1.2.3:80": "10.1.2.3:80",
		"relay:80": "relay:80", "": "", "off": "", "127.0.0.1:0": "",
	} {
		if got, err := localAddress(listen); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is asked at %q, %v; want %q", listen, got, err, want)
		}
	}
}

func TestTheHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	a := app{out: &all, errOut: &all}
	for _, args := range helpPaths(a.root(), nil) {
		out, errOut, code := invoke(t, nil, append(args, "--help")...)
		if code != 0 || errOut != "" {
			t.Errorf("%q: exit code %d: %s", args, code, errOut)
		}
		all.WriteString("$ cdc-relay " + strings.Join(append(args, "--help"), " ") + "\n" + out + "\n")
	}
	golden(t, "testdata/help.txt", all.String())
}
