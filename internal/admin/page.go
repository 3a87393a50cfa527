package admin

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

//go:embed web
var web embed.FS

var (
	static = must(fs.Sub(web, "web/static"))
	pages  = template.Must(template.New("").Funcs(template.FuncMap{
		"age": age, "ago": ago, "size": size, "capped": capped, "clock": clock, "text": func(p *string) string { return *p },
	}).ParseFS(web, "web/*.html"))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // what is embedded is missing: no build can get here
	}
	return v
}

// view is what the templates see.
type view struct {
	Root       string // the way from the page's URL to the root, relative
	Self       string // the page's own URL without its notice
	Refresh    bool
	Notice     string
	CSRF       string // empty: not logged in
	Actions    bool   // a token is configured
	Status     Status
	Charts     []chart
	Table      string // the filter of DEAD rows
	Dead       []deadTable
	DeadShown  int
	DeadFailed bool
	Order      Order
}

// Newest are the changes of mode, newest first.
func (v view) Newest() []Transition {
	newest := slices.Clone(v.Status.Transitions)
	slices.Reverse(newest)
	return newest
}

// chart is a small chart with its numbers in words.
type chart struct {
	Title, Last, Peak, Path string
	Width, Height           int
}

// deadTable are the DEAD rows of one table: an action is for one table.
type deadTable struct {
	Name string
	Rows []DeadRow
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	v := view{
		Self: "./", Refresh: q.Get("refresh") != "off", Notice: notice(q),
		Status: s.status(r.Context()), Charts: s.charts(time.Now()), Table: q.Get("table"),
	}
	if v.Table != "" {
		v.Self += "?" + url.Values{"table": {v.Table}}.Encode()
	}
	s.fillDead(r, &v)
	s.render(w, r, http.StatusOK, "page.html", v)
}

// notice tells what an action did. Nothing of the query is shown but a number.
func notice(q url.Values) string {
	n, err := strconv.Atoi(q.Get("rows"))
	switch done := q.Get("done"); {
	case err != nil || done != "retried" && done != "discarded":
		return ""
	case n == 0:
		return "Nothing was left to do: the rows were no longer DEAD."
	case done == "retried":
		return fmt.Sprintf("Rows that are PENDING again: %d.", n)
	default:
		return fmt.Sprintf("Rows discarded: %d.", n)
	}
}

func (s *Server) charts(now time.Time) []chart {
	rate, oldest := s.history.points()
	one := func(title string, points []point, word func(float64) string) chart {
		c := chart{Title: title, Last: "no value yet", Width: chartWidth, Height: chartHeight}
		if len(points) > 0 {
			path, peak := curve(points, now)
			c.Path, c.Last, c.Peak = path, word(points[len(points)-1].value), word(peak)
		}
		return c
	}
	return []chart{
		one("Published", rate, func(v float64) string { return fmt.Sprintf("%.1f events/s", v) }),
		one("Oldest pending", oldest, age),
	}
}

// fillDead asks for DEAD rows, but only when there are some.
func (s *Server) fillDead(r *http.Request, v *view) {
	dead := int64(0)
	for _, t := range v.Status.Tables {
		dead += t.Dead
	}
	if dead == 0 {
		return
	}
	rows, err := s.deadRows(r.Context(), DeadFilter{Table: v.Table, Limit: pageRows})
	if err != nil {
		s.log.Warn("http page without dead rows", "error", err)
		v.DeadFailed = true
	}
	at := map[string]int{}
	for _, row := range rows {
		i, ok := at[row.Table]
		if !ok {
			i = len(v.Dead)
			at[row.Table] = i
			v.Dead = append(v.Dead, deadTable{Name: row.Table})
		}
		v.Dead[i].Rows = append(v.Dead[i].Rows, row)
	}
	v.DeadShown = len(rows)
}

func (s *Server) loginForm(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "login.html", view{})
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if !s.auth.right(r.PostFormValue("token")) {
		code := http.StatusForbidden
		if s.auth.enabled() {
			s.auth.noted(r)
			code = http.StatusUnauthorized
			w.Header().Set("WWW-Authenticate", challenge)
		}
		s.render(w, r, code, "login.html", view{Notice: "The token is wrong."})
		return
	}
	http.SetCookie(w, s.auth.begin(r))
	s.log.Info("http session begins", "remote", r.RemoteAddr)
	seeOther(w, "./")
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if s.auth.permit(w, r) == "" {
		return
	}
	http.SetCookie(w, s.auth.end(r))
	seeOther(w, "./")
}

// confirm asks again before rows are discarded.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request, o Order) {
	s.render(w, r, http.StatusOK, "confirm.html", view{Root: "../", Order: o})
}

// render fills a template completely before anything is sent, so that an error doesn't leave half a page.
func (s *Server) render(w http.ResponseWriter, r *http.Request, code int, name string, v view) {
	v.Actions = s.auth.enabled()
	if session, ok := s.auth.session(r); ok {
		v.CSRF = session.csrf
	}
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, v); err != nil {
		s.log.Error("http page can't be rendered", "page", name, "error", err)
		refuse(w, http.StatusInternalServerError, "the page can't be rendered, the relay's log says why")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // the reader has gone away
}
