package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// ErrInput is wrapped by an Actions when the request is at fault: a table that isn't served, an id that is none.
var ErrInput = errors.New("bad request")

// Actions are the orders that the endpoint passes on. A table is a Table's Name, an id what Postgres prints.
type Actions interface {
	// ListDead returns DEAD rows, oldest first in each table.
	ListDead(ctx context.Context, filter DeadFilter) ([]DeadRow, error)
	// RetryDead makes DEAD rows PENDING again and returns how many still were DEAD.
	RetryDead(ctx context.Context, o Order) (int, error)
	// DiscardDead removes DEAD rows for good and returns how many still were DEAD.
	DiscardDead(ctx context.Context, o Order) (int, error)
}

// DeadFilter chooses DEAD rows.
type DeadFilter struct {
	// Table is a Table's Name. Empty: all tables.
	Table string
	// Limit is the most rows wanted, over all tables.
	Limit int
}

// DeadRow is a DEAD row without its payload, which stays in the database.
type DeadRow struct {
	ID        string    `json:"id"`
	Table     string    `json:"table"`
	MessageID string    `json:"message_id"`
	Topic     string    `json:"topic"`
	Key       *string   `json:"key"` // nil: none
	EventType string    `json:"event_type"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error"`
	CreatedAt time.Time `json:"created_at"`
}

const (
	pageRows  = 50
	listRows  = 100
	mostRows  = 1000
	maxChosen = 10000
)

// listDead answers with DEAD rows as JSON, so that a script knows what it may name.
func (s *Server) listDead(w http.ResponseWriter, r *http.Request) {
	filter := DeadFilter{Table: r.FormValue("table"), Limit: listRows}
	if text := r.FormValue("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostRows {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("limit must be a number from 1 to %d", mostRows))
			return
		}
		filter.Limit = n
	}
	rows, err := s.deadRows(r.Context(), filter)
	if err != nil {
		s.failed(w, r, "list dead rows", err)
		return
	}
	answer(w, http.StatusOK, struct {
		Rows []DeadRow `json:"rows"`
	}{list(rows)})
}

func (s *Server) deadRows(ctx context.Context, filter DeadFilter) ([]DeadRow, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return s.actions.ListDead(ctx, filter)
}

// Order is the body of an action, as JSON or as a form with the fields table, id and reason.
type Order struct {
	Table  string   `json:"table"`
	IDs    []string `json:"ids"`
	Reason string   `json:"reason"` // why, for the audit trail; may be empty
	By     string   `json:"-"`      // who sent it, for the audit trail
}

// act is the handler of an action; done is its past participle, which the answer uses as a key.
func (s *Server) act(done string, do func(Actions, context.Context, Order) (int, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by := s.auth.permit(w, r)
		if by == "" {
			return
		}
		o, err := readOrder(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		// A discarded row is gone, so a slip of the finger must not be enough. Scripts know what they do.
		if by == "session" && done == "discarded" && r.PostFormValue("confirm") == "" {
			s.confirm(w, r, o)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), actWithin)
		defer cancel()
		o.By = fmt.Sprintf("http %s from %s", by, r.RemoteAddr)
		n, err := do(s.actions, ctx, o)
		if err != nil {
			s.failed(w, r, "act on dead rows", err)
			return
		}
		s.log.Info("dead rows "+done, "table", o.Table, "asked", len(o.IDs), "rows", n, "by", by, "remote", r.RemoteAddr)
		if by == "session" {
			seeOther(w, fmt.Sprintf("../?done=%s&rows=%d", done, n))
			return
		}
		answer(w, http.StatusOK, map[string]int{"asked": len(o.IDs), done: n})
	}
}

func readOrder(r *http.Request) (o Order, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		err = json.NewDecoder(r.Body).Decode(&o)
	} else {
		err = r.ParseForm()
		o = Order{Table: r.PostForm.Get("table"), IDs: r.PostForm["id"], Reason: r.PostForm.Get("reason")}
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("read the request: %w", err)
	case o.Table == "" || len(o.IDs) == 0:
		return o, errors.New("name the table and at least one id")
	case len(o.IDs) > maxChosen:
		return o, fmt.Errorf("name %d ids at most; cdc-relay dead acts on any number of rows", maxChosen)
	}
	return o, nil
}

// failed answers for an error of Actions. Only the operator's own mistakes are told; the rest is for the log, since
// readers without the token get here too.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, deed string, err error) {
	if errors.Is(err, ErrInput) {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.log.Warn("http request failed", "path", r.URL.Path, "deed", deed, "error", err)
	refuse(w, http.StatusInternalServerError, deed+": failed, the relay's log says why")
}

// seeOther redirects relative to the request, so that a proxy may put the endpoint under any path.
func seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
