package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/admin"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func deadRow(table, id string) admin.DeadRow {
	key := "customer-7"
	return admin.DeadRow{
		ID: id, Table: table, MessageID: "b8a7f7b2-0000-4000-8000-000000000001", Topic: "orders", Key: &key, EventType: "order_placed",
		Attempts: 10, LastError: "message_too_large: 2 MiB", CreatedAt: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
	}
}

func chosen(ids ...string) url.Values { return url.Values{"table": {"public.outbox"}, "id": ids} }

func TestG9_ActionsNeedTheToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, token, header string
		code                int
		says                string
	}{
		{"none is configured", "", "Bearer " + token, 403, "http.token_file"},
		{"none is configured, an empty one is sent", "", "Bearer ", 403, "http.token_file"},
		{"it is missing", token, "", 401, "Authorization: Bearer"},
		{"it is wrong", token, "Bearer " + token + "x", 401, "wrong"},
		{"it is empty", token, "Bearer ", 401, "wrong"},
		{"it is a prefix", token, "Bearer " + token[:5], 401, "wrong"},
		{"another scheme", token, "Basic " + token, 401, "Authorization: Bearer"},
		{"it is right", token, "Bearer " + token, 200, `"retried": 2`},
		{"it is right, in small letters", token, "bearer " + token, 200, `"retried": 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, c.token, full())
			got := e.form("/dead/retry", chosen("1", "2"), "Authorization", c.header)
			if got.code != c.code || !strings.Contains(got.body, c.says) {
				t.Errorf("%d %s", got.code, got.body)
			}
			if c.code == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Error("a 401 without WWW-Authenticate")
			}
			if acted := len(e.actions.taken()) > 0; acted != (c.code == 200) {
				t.Errorf("acted: %v", e.actions.taken())
			}
			if e.stop(); strings.Contains(e.logged.String(), token) {
				t.Errorf("the token is in the log:\n%s", e.logged)
			}
		})
	}
}

func TestScriptsActWithFormsAndJSON(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	bearer := []string{"Authorization", "Bearer " + token}
	js := append(slices.Clone(bearer), "Content-Type", "application/json; charset=utf-8")
	if got := e.form("/dead/discard", chosen("7"), bearer...); got.code != 200 || !strings.Contains(got.body, `"discarded": 1`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := e.do("POST", "/dead/retry", `{"table": "a.b", "ids": ["1", "2"], "reason": "mended", "By": "nobody"}`, js...); got.code != 200 || !strings.Contains(got.body, `"retried": 2`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if want := []string{"discard public.outbox 7", "retry a.b 1,2"}; !slices.Equal(want, e.actions.taken()) {
		t.Errorf("taken: %q", e.actions.taken())
	}
	if o := e.actions.lastOrder(); o.Reason != "mended" || !strings.HasPrefix(o.By, "http token from 127.0.0.1:") {
		t.Errorf("the audit trail is given %+v", o)
	}
	for _, bad := range []string{"", "{", `{"table": "a"}`, `{"ids": ["1"]}`, `{"table": "a", "ids": [1]}`, `{"table": "a", "ids": ["` + strings.Repeat("1", 1<<20) + `"]}`} {
		if got := e.do("POST", "/dead/retry", bad, js...); got.code != 400 || !strings.Contains(got.body, `"error"`) {
			t.Errorf("%.20s: %d %s", bad, got.code, got.body)
		}
	}
	if n := len(e.actions.taken()); n != 2 {
		t.Errorf("%d actions", n)
	}
}

func TestG9_ErrorsOfTheDatabaseAreLoggedAndOnlyMistakesAreTold(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	e.actions.err = errors.New("host=db user=secret")
	for _, got := range []answer{e.form("/dead/retry", chosen("1"), "Authorization", "Bearer "+token), e.get("/dead")} {
		if got.code != 500 || strings.Contains(got.body, "secret") {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
	if got := e.get("/"); got.code != 200 || !strings.Contains(got.body, "can&#39;t be read now") && !strings.Contains(got.body, "can't be read now") {
		t.Errorf("%d %s", got.code, got.body)
	}
	e.actions.err = fmt.Errorf("%w: %q is no id", admin.ErrInput, "x")
	if got := e.form("/dead/retry", chosen("x"), "Authorization", "Bearer "+token); got.code != 400 || !strings.Contains(got.body, "is no id") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if e.stop(); !strings.Contains(e.logged.String(), "user=secret") {
		t.Errorf("the error isn't in the log:\n%s", e.logged)
	}
}

func TestDeadRowsAreListedAsJSONWithFilterAndLimit(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	e.actions.rows = []admin.DeadRow{deadRow("a.b", "1"), deadRow("public.outbox", "2"), deadRow("public.outbox", "3")}
	got := e.get("/dead?table=public.outbox&limit=1")
	if got.code != 200 || strings.Count(got.body, `"id"`) != 1 || !strings.Contains(got.body, `"id": "2"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := e.get("/dead?table=none"); strings.Join(strings.Fields(got.body), "") != `{"rows":[]}` {
		t.Errorf("%s", got.body)
	}
	for _, limit := range []string{"0", "-1", "1001", "x"} {
		if got := e.get("/dead?limit=" + limit); got.code != 400 {
			t.Errorf("limit %s: %d", limit, got.code)
		}
	}
}

// login gives the cookie of a new session and the token that its forms must send.
func (e *endpoint) login() (cookie *http.Cookie, csrf string) {
	e.t.Helper()
	got := e.form("/login", url.Values{"token": {token}})
	cookies := (&http.Response{Header: got.header}).Cookies()
	if got.code != 303 || len(cookies) != 1 {
		e.t.Fatalf("%d %v", got.code, got.header)
	}
	m := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(e.get("/", "Cookie", cookies[0].String()).body)
	if m == nil {
		e.t.Fatal("no CSRF token in the page")
	}
	return cookies[0], m[1]
}

func TestG9_ASessionNeedsItsCSRFToken(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	e.actions.rows = []admin.DeadRow{deadRow("public.outbox", "1")}
	cookie, csrf := e.login()
	_, other := e.login()
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Secure {
		t.Errorf("cookie: %s", cookie)
	}
	// Logging out, and acting on the rows of the one table.
	page := e.get("/", "Cookie", cookie.String()).body
	if n := strings.Count(page, `<form method="post"`); n != 2 || strings.Count(page, `name="csrf" value="`+csrf+`"`) != n {
		t.Errorf("not each of %d forms has the CSRF token", n)
	}
	for name, wrong := range map[string]string{"missing": "", "wrong": "x", "of another session": other} {
		form := chosen("1")
		form.Set("csrf", wrong)
		if got := e.form("/dead/retry", form, "Cookie", cookie.String()); got.code != 403 {
			t.Errorf("%s: %d %s", name, got.code, got.body)
		}
	}
	form := chosen("1")
	form.Set("csrf", csrf)
	if got := e.form("/dead/retry", form); got.code != 401 {
		t.Errorf("without the cookie: %d", got.code)
	}
	if n := len(e.actions.taken()); n != 0 {
		t.Fatalf("acted: %v", e.actions.taken())
	}
	got := e.form("/dead/retry", form, "Cookie", cookie.String())
	if got.code != 303 || got.header.Get("Location") != "../?done=retried&rows=1" {
		t.Errorf("%d %v", got.code, got.header)
	}
	if page := e.get("/?done=retried&rows=1", "Cookie", cookie.String()); !strings.Contains(page.body, "Rows that are PENDING again: 1.") {
		t.Error("the page doesn't say what was done")
	}
}

func TestABrowserIsAskedBeforeRowsAreDiscarded(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	cookie, csrf := e.login()
	form := chosen("1", "<2>")
	form.Set("csrf", csrf)
	form.Set("reason", `"no" customer`)
	got := e.form("/dead/discard", form, "Cookie", cookie.String())
	if got.code != 200 || !strings.Contains(got.body, "Discard 2 DEAD rows of public.outbox?") || !strings.Contains(got.body, `name="id" value="&lt;2&gt;"`) ||
		!strings.Contains(got.body, `name="reason" value="&#34;no&#34; customer"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	if n := len(e.actions.taken()); n != 0 {
		t.Fatalf("acted: %v", e.actions.taken())
	}
	form.Set("confirm", "yes")
	if got := e.form("/dead/discard", form, "Cookie", cookie.String()); got.code != 303 {
		t.Errorf("%d %s", got.code, got.body)
	}
	if want := []string{"discard public.outbox 1,<2>"}; !slices.Equal(want, e.actions.taken()) {
		t.Errorf("acted: %q", e.actions.taken())
	}
	if o := e.actions.lastOrder(); o.Reason != `"no" customer` || !strings.HasPrefix(o.By, "http session from 127.0.0.1:") {
		t.Errorf("the audit trail is given %+v", o)
	}
}

func TestG9_LoginNeedsTheTokenAndLogoutEndsTheSession(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	if got := e.form("/login", url.Values{"token": {"wrong"}}); got.code != 401 || got.header.Get("Set-Cookie") != "" || !strings.Contains(got.body, "The token is wrong.") {
		t.Errorf("%d %v", got.code, got.header)
	}
	if got := e.get("/login"); got.code != 200 || !strings.Contains(got.body, `type="password"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	cookie, csrf := e.login()
	if got := e.form("/logout", url.Values{}, "Cookie", cookie.String()); got.code != 403 {
		t.Errorf("logged out without the CSRF token: %d", got.code)
	}
	if got := e.form("/logout", url.Values{"csrf": {csrf}}, "Cookie", cookie.String()); got.code != 303 {
		t.Errorf("%d %s", got.code, got.body)
	}
	form := chosen("1")
	form.Set("csrf", csrf)
	if got := e.form("/dead/retry", form, "Cookie", cookie.String()); got.code != 401 {
		t.Errorf("the session goes on: %d", got.code)
	}
	e.stop()
	if log := e.logged.String(); !strings.Contains(log, "wrong token") || strings.Contains(log, cookie.Value) || strings.Contains(log, csrf) {
		t.Errorf("log:\n%s", log)
	}
}

func TestG9_LoginIsRefusedWithoutAConfiguredToken(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	for _, given := range []string{"", "x"} {
		if got := e.form("/login", url.Values{"token": {given}}); got.code != 403 || got.header.Get("Set-Cookie") != "" || !strings.Contains(got.body, "http.token_file") {
			t.Errorf("%q: %d %v", given, got.code, got.header)
		}
	}
}

func TestG9_TheCookieIsSecureBehindTLS(t *testing.T) {
	t.Parallel()
	got := start(t, token, full()).form("/login", url.Values{"token": {token}}, "X-Forwarded-Proto", "https")
	if !strings.Contains(got.header.Get("Set-Cookie"), "; Secure") {
		t.Error(got.header)
	}
}
