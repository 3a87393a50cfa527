// Package fallbackpoll reads the PENDING rows of the outbox tables, pass by pass and page by page. The poll is the
// authority: whatever the stream misses, a pass finds, because the row is still PENDING.
//
// When a pass begins is not decided here, nor what is fed from it: package dispatch does both. The Poller only reads. It
// is used by one goroutine at a time and starts none.
//
// Invariants:
//   - A pass covers only rows up to the highest one that was visible when it began (its bound). Its pages have different
//     snapshots; without the bound, a later page could bring a row of a key whose earlier row became visible behind the
//     cursor.
//   - "Behind the last row seen" is never progress from one pass to the next: ids commit out of order, and a row may
//     become PENDING again. Each pass starts at the beginning, or at a floor that passes without one make good (floor.go).
//   - Page.WAL is read after the page's snapshot, so every row in the page has a smaller commit position.
//   - A page is bounded in rows and in bytes, and has at least one row when there is one.
//   - All times are the database's clock.
package fallbackpoll
