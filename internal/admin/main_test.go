package admin_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "correct-horse-battery-staple"

// source is a relay that is what the test sets.
type source struct {
	mu      sync.Mutex
	status  admin.Status
	sampled chan struct{} // closed by the first Status
	once    sync.Once
	hold    chan struct{} // when not nil, Status waits for it or for its context
	asked   chan struct{} // told of a Status that waits
}

func (s *source) Status(ctx context.Context) admin.Status {
	s.once.Do(func() { close(s.sampled) })
	s.mu.Lock()
	hold, asked := s.hold, s.asked
	s.mu.Unlock()
	if hold != nil {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *source) set(change func(*admin.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// actions keeps DEAD rows in memory.
type actions struct {
	mu     sync.Mutex
	rows   []admin.DeadRow
	err    error
	calls  []string // "retry public.outbox 1,2"
	listed int
	filter admin.DeadFilter
	last   admin.Order
}

func (a *actions) ListDead(_ context.Context, f admin.DeadFilter) ([]admin.DeadRow, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed++
	a.filter = f
	var rows []admin.DeadRow
	for _, row := range a.rows {
		if (f.Table == "" || f.Table == row.Table) && len(rows) < f.Limit {
			rows = append(rows, row)
		}
	}
	return rows, a.err
}

func (a *actions) RetryDead(_ context.Context, o admin.Order) (int, error) {
	return a.act("retry", o)
}

func (a *actions) DiscardDead(_ context.Context, o admin.Order) (int, error) {
	return a.act("discard", o)
}

func (a *actions) act(deed string, o admin.Order) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, deed+" "+o.Table+" "+strings.Join(o.IDs, ","))
	a.last = o
	if a.err != nil {
		return 0, a.err
	}
	return len(o.IDs), nil
}

func (a *actions) lastOrder() admin.Order {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *actions) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// endpoint is a running server with a browser's memory for cookies left out: tests say which they send.
type endpoint struct {
	t       *testing.T
	base    string
	client  *http.Client
	source  *source
	actions *actions
	logged  *logged
	stop    func() error // stops the server and gives what Run returned
}

// logged is what the server has logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a server with the token, or without one when it is empty.
func start(t *testing.T, token string, status admin.Status) *endpoint {
	t.Helper()
	e := &endpoint{t: t, source: &source{status: status, sampled: make(chan struct{})}, actions: &actions{}, logged: &logged{}}
	cfg := admin.Config{Listen: "127.0.0.1:0"}
	if token != "" {
		cfg.TokenFile = file(t, "  "+token+"\n")
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "cdc_relay_leader", Help: "Help."}))
	server, err := admin.New(cfg, e.source, reg, e.actions, slog.New(slog.NewTextHandler(e.logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	e.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("the server doesn't stop")
		}
	})
	transport := &http.Transport{}
	e.base = "http://" + server.Addr().String()
	e.client = &http.Client{
		Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// answer is a response that was read to its end.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (e *endpoint) do(method, path, body string, header ...string) answer {
	e.t.Helper()
	req, err := http.NewRequest(method, e.base+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (e *endpoint) get(path string, header ...string) answer {
	e.t.Helper()
	return e.do("GET", path, "", header...)
}

// form posts a form.
func (e *endpoint) form(path string, values url.Values, header ...string) answer {
	e.t.Helper()
	return e.do("POST", path, values.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}
