package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Limits of the server. A stop takes stopWithin at most: long requests are cut then.
const (
	stopWithin   = 1500 * time.Millisecond
	answerWithin = 3 * time.Second  // for a Status, and for the DEAD rows of the page
	actWithin    = 20 * time.Second // for an action
	maxBody      = 1 << 20          // bytes
)

// Config says where the endpoint is and who may act.
type Config struct {
	// Listen is http.listen, as host:port; port 0 takes a free one. Empty or "off": no endpoint.
	Listen string
	// TokenFile is http.token_file: a file with the token that actions need, blanks around it ignored. Empty: no actions.
	TokenFile string
}

// Server is the endpoint.
type Server struct {
	source  Source
	actions Actions
	log     *slog.Logger
	auth    *auth

	listener net.Listener // nil: there is no endpoint
	handler  http.Handler
	history  history
}

// New reads the token and begins to listen; Run answers. The metrics are those of the gatherer.
func New(cfg Config, source Source, gatherer prometheus.Gatherer, actions Actions, log *slog.Logger) (*Server, error) {
	s := &Server{source: source, actions: actions, log: log}
	var err error
	if s.auth, err = newAuth(cfg.TokenFile, log); err != nil {
		return nil, err
	}
	if cfg.Listen == "" || cfg.Listen == "off" {
		return s, nil
	}
	var listen net.ListenConfig
	if s.listener, err = listen.Listen(context.Background(), "tcp", cfg.Listen); err != nil { // a name is resolved, no more
		return nil, fmt.Errorf("listen for http: %w (set http.listen to a free address of this machine, or to \"\" for no endpoint)", err)
	}
	s.auth.nameCookie(s.listener.Addr())
	s.handler = s.routes(gatherer)
	return s, nil
}

// Addr is where the server listens, nil when there is no endpoint.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run answers requests and takes samples until ctx ends, and then returns nil within two seconds. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.log.Info("http endpoint listens", "address", s.listener.Addr().String(), "actions", s.auth.enabled())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve http on %s: %w", s.listener.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		s.sample(ctx)
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return stop(server)
	})
	return g.Wait()
}

// stop lets requests under way finish, and cuts those that don't.
func stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // the error tells of connections that are closed anyway
	}
	return nil
}

// sample feeds the charts until ctx ends.
func (s *Server) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.history.add(time.Now(), s.status(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// status asks the source.
func (s *Server) status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	st := s.source.Status(ctx)
	if st.Throughput.RatePerSecond == 0 {
		st.Throughput.RatePerSecond = s.history.rate(time.Now())
	}
	return st
}

func (s *Server) routes(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // a metric that fails doesn't hide the others
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /status", s.statusJSON)
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /dead", s.listDead)
	mux.HandleFunc("POST /dead/retry", s.act("retried", Actions.RetryDead))
	mux.HandleFunc("POST /dead/discard", s.act("discarded", Actions.DiscardDead))
	mux.HandleFunc("GET /login", s.loginForm)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	return guarded(mux)
}

// guarded sets what the browser must hold to, bounds what a request may bring, and keeps answers out of caches.
func guarded(next http.Handler) http.Handler {
	const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
