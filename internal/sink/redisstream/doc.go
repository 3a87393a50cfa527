// Package redisstream publishes events to Redis Streams with go-redis: one server, one watched by Sentinels, or a Cluster.
//
// An event is one entry of the stream that its topic names, with the fields id (the message id), key, type, payload and
// headers (a JSON object of the row's headers and created_at); key, type and payload are left out where they are NULL.
//
// What a pipeline of XADD doesn't give, and this package adds:
//
//   - Order of a key. Each command of a pipeline succeeds or fails for itself: memory that is full for one may be free
//     for the next, a replica may become the master in between. Here the entries of a call go into one transaction
//     (MULTI … EXEC), still in one round trip: whatever the server has against writing makes it refuse all of them.
//     What can fail within EXEC is one stream's, so it fails alike for every entry there. In a Cluster a transaction
//     has one stream; a key that changes its stream within a call waits for its former one.
//   - Nothing is sent twice by the client. go-redis would send a whole pipeline again after a lost answer, and again to
//     another node after a redirection: all of that is off.
//   - Outages. After the first sign of one nothing more is tried until a Probe succeeds, which makes the server look at a
//     write without doing it (MULTI, XADD, DISCARD), and begins anew with fresh connections, names and roles.
//   - Bounds. Every call ends soon after its context, though a socket may keep its goroutine for as long as
//     sink.redis.timeout.
//
// The walk of a batch: publication plans transactions (publication.go) → exchange sends those of one server and reads the
// replies by index (exchange.go) → publication judges them (classify.go) and plans again, until each event has its
// result.
//
// Who owns which goroutine: each exchange has one, which ends with its answer or a timeout; the Sink waits for them in
// Close. go-redis has its own, which end with its client.
//
// Invariants: an event is acknowledged only by the server's reply in EXEC, and where replicas are waited for, by WAIT too.
// An error's class comes from its code, never from its text. No password reaches an error or a log line.
package redisstream
