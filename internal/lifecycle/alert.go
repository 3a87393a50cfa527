package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// AlertConfig are the settings of an Alerter.
type AlertConfig struct {
	// URL receives the alerts by POST. Empty: DEAD rows are only logged and counted. It may hold a secret and is never
	// logged.
	URL string
	// Template is the form of the body: generic (the default), slack or alertmanager.
	Template string
	// RepeatInterval is the time between two reminders while DEAD rows remain; 4 h when 0.
	RepeatInterval time.Duration
	// GroupInterval is the least time between two alerts: what dies meanwhile comes in one; a minute when 0.
	GroupInterval time.Duration
	// Timeout bounds one request; 10 s when 0.
	Timeout time.Duration
}

// Validate checks the settings.
func (c AlertConfig) Validate() error {
	var errs []error
	if _, ok := templates[c.Template]; !ok && c.Template != "" {
		errs = append(errs, fmt.Errorf("template %q is not one of generic, slack, alertmanager", c.Template))
	}
	if u, err := url.Parse(c.URL); c.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, errors.New("url must be http://… or https://…"))
	}
	return errors.Join(errs...)
}

// Deceased is a row that has become DEAD, as far as an alert may tell of it.
type Deceased struct {
	Table     string `json:"table"`
	ID        string `json:"id"`
	MessageID string `json:"message_id"`
	Topic     string `json:"topic"`
	Reason    string `json:"reason"`
}

// maxSamples is the number of rows that an alert names.
const maxSamples = 10

// alertTrouble is how the Alerter waits after a request that failed.
var alertTrouble = Retry{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: 0.2}

// Alerter tells a human of DEAD rows: at once of the first, then at most once each GroupInterval, and again each
// RepeatInterval while the tables have DEAD rows. What can't be sent is kept, as a count and some samples, until it can.
type Alerter struct {
	cfg     AlertConfig
	deadNow func(context.Context) (int64, error)
	metrics *Metrics
	log     *slog.Logger
	client  *http.Client
	render  func(alert) ([]byte, error)

	wake chan struct{}

	mu   sync.Mutex
	news news
}

// news is what died and was not yet told.
type news struct {
	rows    int64
	reasons map[string]int64
	samples []Deceased
}

func (n *news) add(other news) {
	n.rows += other.rows
	if n.reasons == nil {
		n.reasons = map[string]int64{}
	}
	for reason, rows := range maps.All(other.reasons) {
		n.reasons[reason] += rows
	}
	n.samples = append(n.samples, other.samples[:min(len(other.samples), maxSamples-len(n.samples))]...)
}

// NewAlerter makes an Alerter. deadNow counts the DEAD rows in the tables: Dead.Count.
func NewAlerter(cfg AlertConfig, deadNow func(context.Context) (int64, error), metrics *Metrics, log *slog.Logger) *Alerter {
	def(&cfg.RepeatInterval, 4*time.Hour)
	def(&cfg.GroupInterval, time.Minute)
	def(&cfg.Timeout, 10*time.Second)
	if cfg.Template == "" {
		cfg.Template = "generic"
	}
	return &Alerter{
		cfg: cfg, deadNow: deadNow, metrics: metrics, log: log, render: templates[cfg.Template], wake: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: cfg.Timeout,
			// A redirect may lead anywhere, with the secret that the URL holds.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Second},
		},
	}
}

// Dead takes rows that have become DEAD. It doesn't block.
func (a *Alerter) Dead(rows []Deceased) {
	n := news{rows: int64(len(rows)), reasons: map[string]int64{}, samples: rows}
	for _, row := range rows {
		n.reasons[row.Reason]++
	}
	a.mu.Lock()
	a.news.add(n)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run sends alerts until ctx ends, and then what is still untold, once, within a few seconds.
func (a *Alerter) Run(ctx context.Context) error {
	if a.cfg.URL == "" {
		return nil
	}
	defer a.client.CloseIdleConnections()
	var failures int
	notBefore := time.Now()                         // of the next alert
	reminder := time.Now().Add(a.cfg.GroupInterval) // soon after a start, for what an earlier run may have left untold
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		untold := a.untold()
		now := time.Now()
		if !now.Before(notBefore) && (untold || !now.Before(reminder)) {
			told, err := a.tell(ctx)
			now = time.Now()
			switch {
			case err != nil:
				failures++
				notBefore = now.Add(alertTrouble.delay(failures))
			case told:
				failures = 0
				notBefore, reminder = now.Add(a.cfg.GroupInterval), now.Add(a.cfg.RepeatInterval)
			default:
				reminder = now.Add(a.cfg.RepeatInterval)
			}
		}
		next := reminder
		if a.untold() || next.Before(notBefore) {
			next = notBefore
		}
		timer.Reset(max(time.Until(next), 0))
		select {
		case <-ctx.Done():
			if a.untold() {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(a.cfg.Timeout, 3*time.Second))
				defer cancel()
				_, _ = a.tell(last)
			}
			return nil
		case <-a.wake:
		case <-timer.C:
		}
	}
}

func (a *Alerter) untold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news.rows > 0
}

// tell sends what is untold, or a reminder when the tables still have DEAD rows; false: there was nothing to tell.
func (a *Alerter) tell(ctx context.Context) (bool, error) {
	remaining, err := a.deadNow(ctx)
	if err != nil {
		remaining = -1 // the news is sent without that figure
	}
	a.mu.Lock()
	taken := a.news
	a.news = news{}
	a.mu.Unlock()
	if taken.rows == 0 && remaining <= 0 {
		return false, err
	}
	if err := a.post(ctx, taken, remaining); err != nil {
		a.mu.Lock()
		taken.add(a.news)
		a.news = taken
		a.mu.Unlock()
		a.metrics.alerts.WithLabelValues("error").Inc()
		a.log.Warn("sending an alert failed, it is tried again", "rows", taken.rows, "error", err)
		return false, err
	}
	a.metrics.alerts.WithLabelValues("ok").Inc()
	a.log.Info("sent an alert", "new_dead_rows", taken.rows, "dead_rows", remaining)
	return true, nil
}

// post sends one alert. Its errors don't name the URL.
func (a *Alerter) post(ctx context.Context, n news, remaining int64) error {
	body, err := a.render(newAlert(n, remaining, time.Now(), a.cfg.RepeatInterval))
	if err != nil {
		return fmt.Errorf("render the alert: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's url is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "cdc-relay")
	res, err := a.client.Do(req)
	var named *url.Error
	if errors.As(err, &named) {
		return fmt.Errorf("post to the webhook: %w", named.Err)
	}
	if err != nil {
		return fmt.Errorf("post to the webhook: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %d", res.StatusCode)
	}
	return nil
}
