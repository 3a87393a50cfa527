package admin_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/admin"
)

func TestThePageShowsTheState(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	e.actions.rows = []admin.DeadRow{deadRow("public.outbox", "41"), deadRow("public.other", "42")}
	e.actions.rows[1].Key = nil
	got := e.get("/")
	if got.code != 200 || got.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", got.code, got.header)
	}
	for _, want := range []string{
		"<title>LIVE · cdc-relay</title>", "ready, degraded", "wal_level is replica", "the pass is over", "this one, for 1h0m0s", "1m0s",
		"123456", "987.5 a second", "12 events, 4.7 KiB", "public.outbox", "10001 or more", "1m31s", "0/16B3748", "reserved", "16.0 MiB", "kafka",
		"CATCHUP → LIVE", "message_too_large: 2 MiB", "customer-7", "<em>none</em>", "order_placed", "b8a7f7b2-0000-4000-8000-000000000001",
		`<a href="login">Log in with the token</a>`, "<svg", `lang="en"`,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(got.body, "checkbox") || strings.Contains(got.body, "<button") {
		t.Error("the page offers actions to someone without the token")
	}
}

func TestThePageFiltersDeadRowsByTable(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	e.actions.rows = []admin.DeadRow{deadRow("public.outbox", "41"), deadRow("public.other", "42")}
	body := e.get("/?table=public.other").body
	if !strings.Contains(body, ">42<") || strings.Contains(body, ">41<") || !strings.Contains(body, `url=./?table=public.other`) {
		t.Error(body)
	}
}

func TestG8_ThePageAsksForDeadRowsOnlyWhenThereAreSome(t *testing.T) {
	t.Parallel()
	e := start(t, "", full())
	e.source.set(func(s *admin.Status) { s.Tables[0].Dead = 0 })
	if body := e.get("/").body; !strings.Contains(body, "There are none.") || e.actions.listed != 0 {
		t.Errorf("listed %d times", e.actions.listed)
	}
}

func TestThePageCanBePausedAndDoesNotReloadUnderALoggedInReader(t *testing.T) {
	t.Parallel()
	e := start(t, token, full())
	cookie, _ := e.login()
	for _, c := range []struct {
		path           string
		header         []string
		script, reload bool
	}{
		{"/", nil, true, true},
		{"/?refresh=off", nil, false, false},
		{"/", []string{"Cookie", cookie.String()}, true, false},
	} {
		body := e.get(c.path, c.header...).body
		if strings.Contains(body, "page.js") != c.script || strings.Contains(body, `http-equiv="refresh"`) != c.reload {
			t.Errorf("%s %v:\n%s", c.path, c.header, body)
		}
	}
}

const hostile = `"'><img src=x onerror=alert(1)></title><script>alert(1)</script>{{.}}`

// spoil sets every string of a value.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		spoil(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				spoil(v.Field(i))
			}
		}
	}
}

func TestG9_HostileStringsAreEscapedEverywhere(t *testing.T) {
	t.Parallel()
	status, row := full(), deadRow("", "")
	spoil(reflect.ValueOf(&status))
	spoil(reflect.ValueOf(&row))
	e := start(t, token, status)
	e.actions.rows = []admin.DeadRow{row}
	cookie, csrf := e.login()
	in := []string{"Cookie", cookie.String()}
	form := chosen(hostile)
	form.Set("table", hostile)
	form.Set("csrf", csrf)
	query := "?table=" + strings.ReplaceAll(form.Encode(), "csrf", "x")
	for name, got := range map[string]answer{
		"page": e.get("/", in...), "page with a query": e.get("/"+query, in...), "page of a stranger": e.get("/" + query + "&done=" + hostileQuery + "&rows=1"),
		"confirm": e.form("/dead/discard", form, in...), "login": e.get("/login" + query),
	} {
		if got.code != 200 {
			t.Errorf("%s: %d %s", name, got.code, got.body)
		}
		if strings.Contains(got.body, "<img") || strings.Contains(got.body, "<script>") || strings.Contains(got.body, "ZgotmplZ") {
			t.Errorf("%s: %s", name, got.body)
		}
		for _, m := range regexp.MustCompile(`(?:src|href|action|formaction|url)=["]?([^">]*)`).FindAllStringSubmatch(got.body, -1) {
			if strings.Contains(m[1], "//") || strings.Contains(m[1], "javascript:") || strings.HasPrefix(m[1], "/") {
				t.Errorf("%s: a reference that isn't relative: %s", name, m[1])
			}
		}
		if regexp.MustCompile(`\s(?:on\w+|style)=`).MatchString(regexp.MustCompile(`"[^"]*"|>[^<]*<`).ReplaceAllString(got.body, "")) {
			t.Errorf("%s: inline script or style", name)
		}
	}
	if strings.Count(e.get("/", in...).body, "&lt;script&gt;") < 20 {
		t.Error("the page doesn't show the strings at all")
	}
}

const hostileQuery = "%3Cscript%3E"

func TestTheStyleSheetAndTheScriptAreServed(t *testing.T) {
	t.Parallel()
	e := start(t, "", admin.Status{})
	if got := e.get("/static/page.css"); got.code != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/css") || !strings.Contains(got.body, "prefers-color-scheme: dark") {
		t.Errorf("%d %v", got.code, got.header)
	}
	if got := e.get("/static/page.js"); got.code != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/javascript") {
		t.Errorf("%d %v", got.code, got.header)
	}
}
