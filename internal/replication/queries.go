package replication

// All SQL of the package. On the replication connection parameters are interpolated by pgx, since a walsender knows only
// the simple protocol. Columns that not all versions have are read through to_jsonb.

// identify: what decides whether logical replication is possible here at all.
const identify = `
SELECT pg_is_in_recovery(), current_setting('wal_level'), current_user::text,
       (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_block_size'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size')`

// prepareSession: lock_timeout ($1, milliseconds) is the only thing that ends the creation of a slot which waits for an
// open transaction; statement_timeout doesn't. wal_sender_timeout is only ever made shorter: with 0 the server would keep
// the slot of a dead connection for ever.
const prepareSession = `
SELECT set_config('lock_timeout', $1, false), set_config('bytea_output', 'hex', false),
       (SELECT set_config('wal_sender_timeout', '30s', false) FROM pg_settings
        WHERE name = 'wal_sender_timeout' AND setting::bigint NOT BETWEEN 1 AND 30000)`

const setWorkMem = `SELECT set_config('logical_decoding_work_mem', $1, false)`

// endLockTimeout: decoding takes locks on catalogs, and may wait for them.
const endLockTimeout = `SET lock_timeout = 0`

const findPublication = `
SELECT pubinsert, pubupdate OR pubdelete, pubviaroot FROM pg_publication WHERE pubname = $1`

// publicationTables: for each oid of $2 the table's name (NULL: there is none), and what the publication $1 has of it.
// Before version 15 there is neither a row filter nor a column list.
const publicationTables = `
SELECT o.oid, coalesce(n.nspname, '')::text, coalesce(c.relname, '')::text, t.tablename IS NOT NULL,
       coalesce(to_jsonb(t) ->> 'rowfilter', ''),
       ARRAY(SELECT jsonb_array_elements_text(coalesce(to_jsonb(t) -> 'attnames', '[]')))
FROM unnest($2::text::oid[]) WITH ORDINALITY o(oid, n)
LEFT JOIN pg_class c ON c.oid = o.oid
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables t ON t.pubname = $1 AND t.schemaname = n.nspname AND t.tablename = c.relname
ORDER BY o.n`

// findSlot: a slot may be invalid for several reasons; restart_lsn is NULL then. The walsender's name is NULL for a role
// that may not see it.
const findSlot = `
SELECT coalesce(s.plugin, '')::text, coalesce(s.database, '')::text, s.database IS NOT DISTINCT FROM current_database(),
       s.temporary, coalesce((to_jsonb(s) ->> 'failover')::boolean, false), coalesce(s.active_pid, 0), coalesce(a.application_name, ''),
       coalesce(to_jsonb(s) ->> 'invalidation_reason',
                CASE WHEN s.wal_status = 'lost' THEN 'wal_removed'
                     WHEN (to_jsonb(s) ->> 'conflicting')::boolean THEN 'conflict' END, ''),
       pg_backend_pid()
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1`

// createFailoverSlot needs version 17. %s: the name, which is made of characters that need no quotes.
const createFailoverSlot = `CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)`

const dropSlot = `SELECT pg_drop_replication_slot($1)`

// terminateWalsender checks again that it is still the slot's walsender that is terminated.
const terminateWalsender = `
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid = $2`

// openTransactions: who holds a transaction id, oldest first. pg_locks shows it to every role; a prepared transaction
// has no pid.
const openTransactions = `
SELECT coalesce(l.pid, 0), coalesce(a.application_name, ''), coalesce(p.gid, ''),
       coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::bigint
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY coalesce(a.xact_start, p.prepared) NULLS LAST LIMIT 3`

const startPosition = `SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()`

// sampleSlot compares with the replayed position on a standby, which has no current one.
const sampleSlot = `
SELECT s.active, coalesce(s.wal_status, ''), coalesce(s.confirmed_flush_lsn, '0/0'), coalesce(s.restart_lsn, '0/0'),
       coalesce(greatest(w.pos - s.confirmed_flush_lsn, 0), 0)::bigint,
       coalesce(greatest(w.pos - s.restart_lsn, 0), 0)::bigint
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) w(pos)
WHERE s.slot_name = $1`

// surroundings: what the check command looks at beside publication and slot. $1: the role of the replication connection.
// Amazon's service gives the right to replicate by membership in a role of its own.
const surroundings = `
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       pg_is_in_recovery(), current_setting('wal_level'),
       coalesce((SELECT bool_or(r.rolreplication OR r.rolsuper
                 OR EXISTS (SELECT FROM pg_roles m WHERE m.rolname = 'rds_replication' AND pg_has_role(r.oid, m.oid, 'member')))
                 FROM pg_roles r WHERE r.rolname = $1), false),
       current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots)::int,
       current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication)::int,
       current_setting('max_slot_wal_keep_size'), (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout')`
