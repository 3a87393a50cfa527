// Package admin is the HTTP endpoint: metrics, health, status, and a page for people, with retry and discard of DEAD rows
// for those who have the token.
//
// It defines the words in which the relay tells its state (Status) and takes orders (Actions); who runs the relay fills
// them. It knows no other package of the relay.
//
// Invariants:
//   - Health is derived from Status alone, so /livez, /readyz, /status and the page can't contradict each other.
//   - Reading needs no token and changes nothing. Every change needs the token; from a browser it also needs a session
//     and the CSRF token of its forms. Without a configured token nothing can be changed.
//   - No payload, no token and no session is logged or shown. Whatever comes from rows or errors is escaped by
//     html/template, and the Content-Security-Policy allows nothing but this server's own style sheet and script.
//   - Reading costs the database one indexed query of DEAD rows at most, and only while there are any.
package admin
