package admin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestSessionsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, err := newAuth("", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := request(t)
		first := a.begin(r)
		r.AddCookie(first)
		if _, ok := a.session(r); !ok {
			t.Error("a new session isn't known")
		}
		for range maxSessions {
			time.Sleep(time.Second)
			a.begin(r)
		}
		if _, ok := a.session(r); ok || len(a.sessions) != maxSessions {
			t.Errorf("%d sessions, the first known: %v", len(a.sessions), ok)
		}
		r = request(t)
		r.AddCookie(a.begin(r))
		time.Sleep(sessionFor)
		if _, ok := a.session(r); ok {
			t.Error("a session doesn't end")
		}
		if a.begin(r); len(a.sessions) != 1 {
			t.Errorf("%d sessions are kept, of which one goes on", len(a.sessions))
		}
	})
}

func request(t *testing.T) *http.Request {
	t.Helper()
	return httptest.NewRequest(http.MethodGet, "/", nil)
}
