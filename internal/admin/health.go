package admin

import (
	"encoding/json"
	"net/http"
)

// livez fails only when a restart of this process would help. Everything else is for readyz: restarting the relay
// because Postgres or the broker is away only makes things worse.
func (s *Server) livez(w http.ResponseWriter, r *http.Request) {
	stuck := s.status(r.Context()).Stuck
	answer(w, codeOf(stuck == ""), struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason"`
	}{stuck == "", stuck})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	st := s.status(r.Context())
	answer(w, codeOf(st.Ready), struct {
		Ready    bool     `json:"ready"`
		Reasons  []string `json:"reasons"`
		Degraded []string `json:"degraded"`
	}{st.Ready, list(st.Reasons), list(st.Degraded)})
}

func (s *Server) statusJSON(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, s.status(r.Context()))
}

func codeOf(good bool) int {
	if good {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// answer writes JSON, indented because people read it too.
func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // never read as HTML: the type is set and sniffing is off
	_ = enc.Encode(body)     // the reader has gone away, and nobody is left to tell
}

// refuse answers with an error that says what to do.
func refuse(w http.ResponseWriter, code int, text string) {
	answer(w, code, struct {
		Error string `json:"error"`
	}{text})
}
