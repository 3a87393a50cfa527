package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	sessionFor  = 8 * time.Hour
	maxSessions = 100
	shortToken  = 16 // characters; a shorter token is guessed too easily
	warnEvery   = 10 * time.Second
	challenge   = `Bearer realm="cdc-relay"`
)

// auth decides who may act: whoever sends the token, and browsers with a session that began with the token. Sessions
// live in memory and end with the process.
type auth struct {
	log    *slog.Logger
	digest *[sha256.Size]byte // of the token; nil: none is configured
	cookie string             // its name

	mu       sync.Mutex
	sessions map[string]session // by what the cookie holds
	warned   time.Time
	wrong    int // wrong tokens since warned
}

// session is a browser that knows the token.
type session struct {
	csrf  string // what its forms must send along
	until time.Time
}

func newAuth(file string, log *slog.Logger) (*auth, error) {
	a := &auth{log: log, cookie: "cdc_relay_session", sessions: map[string]session{}}
	if file == "" {
		return a, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read http.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return nil, fmt.Errorf("http.token_file names %s, which is empty: write a long random token into it", file)
	}
	if len(token) < shortToken {
		log.Warn("http token is short and can be guessed", "characters", len(token), "wanted", shortToken)
	}
	digest := sha256.Sum256([]byte(token))
	a.digest = &digest
	return a, nil
}

// nameCookie adds the port: cookies don't know ports, and two relays on one machine would log each other out.
func (a *auth) nameCookie(addr net.Addr) {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		a.cookie = fmt.Sprintf("cdc_relay_session_%d", tcp.Port)
	}
}

func (a *auth) enabled() bool { return a.digest != nil }

// right compares digests in constant time, so that neither the content nor the length of the token can be timed.
func (a *auth) right(token string) bool {
	digest := sha256.Sum256([]byte(token))
	return a.digest != nil && subtle.ConstantTimeCompare(digest[:], a.digest[:]) == 1
}

// noted logs a wrong token, at a limited rate.
func (a *auth) noted(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong++
	if time.Since(a.warned) > warnEvery {
		a.log.Warn("http request with a wrong token", "remote", r.RemoteAddr, "path", r.URL.Path, "times", a.wrong)
		a.warned, a.wrong = time.Now(), 0
	}
}

// begin makes a session and gives its cookie.
func (a *auth) begin(r *http.Request) *http.Cookie {
	id, now := rand.Text(), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	oldest := ""
	for other, s := range a.sessions {
		if !now.Before(s.until) {
			delete(a.sessions, other)
		} else if oldest == "" || s.until.Before(a.sessions[oldest].until) {
			oldest = other
		}
	}
	if len(a.sessions) >= maxSessions {
		delete(a.sessions, oldest)
	}
	a.sessions[id] = session{csrf: rand.Text(), until: now.Add(sessionFor)}
	return a.baked(r, id, int(sessionFor.Seconds()))
}

// end forgets the session of a request and gives the cookie that makes the browser forget it too.
func (a *auth) end(r *http.Request) *http.Cookie {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, err := r.Cookie(a.cookie); err == nil {
		delete(a.sessions, c.Value)
	}
	return a.baked(r, "", -1)
}

func (a *auth) baked(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: a.cookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		// The relay itself speaks plain HTTP; a proxy that ends TLS says so.
		Secure: r.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// session is the session of a request.
func (a *auth) session(r *http.Request) (session, bool) {
	c, err := r.Cookie(a.cookie)
	if err != nil {
		return session{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.sessions[c.Value]
	return s, ok && time.Now().Before(s.until)
}

// permit says who acts ("token" or "session"), or answers the request itself and returns "".
func (a *auth) permit(w http.ResponseWriter, r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	s, logged := a.session(r)
	switch {
	case !a.enabled():
		refuse(w, http.StatusForbidden, "actions are off: set http.token_file to a file that holds a token, and restart the relay")
	case strings.EqualFold(scheme, "Bearer"):
		if a.right(strings.TrimSpace(token)) {
			return "token"
		}
		a.noted(r)
		unauthorised(w, "the token is wrong: send the content of http.token_file")
	case !logged:
		unauthorised(w, "send the header Authorization: Bearer with the content of http.token_file, or log in at /login")
	case subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.csrf)) != 1:
		refuse(w, http.StatusForbidden, "the form doesn't belong to this session: load the page again")
	default:
		return "session"
	}
	return ""
}

func unauthorised(w http.ResponseWriter, text string) {
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, text)
}
