package machine

import "fmt"

// The diary has an entry for each change of a row's state and each counted attempt. Its triggers run once a statement.
const (
	createDiary = `CREATE TABLE diary (
		n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid bigint, was text, became text, attempts int,
		attempted boolean, error text, published_at timestamptz, at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE INDEX ON diary (uid)`

	diaryFunction = `CREATE FUNCTION keep_diary() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF TG_OP = 'DELETE' THEN
			INSERT INTO diary (uid, was, became, attempts, attempted)
			SELECT (o.payload->>'u')::bigint, o.status, 'GONE', o.attempts, false FROM before o;
		ELSE
			INSERT INTO diary (uid, was, became, attempts, attempted, error, published_at)
			SELECT (n.payload->>'u')::bigint, o.status, n.status, n.attempts, n.attempts > o.attempts, n.last_error, n.published_at
			FROM after n JOIN before o USING (id) WHERE o.status <> n.status OR o.attempts <> n.attempts;
		END IF;
		RETURN NULL;
	END $$`

	isMarked  = `SELECT EXISTS (SELECT 1 FROM diary WHERE uid = $1 AND became = 'PUBLISHED')`
	readDiary = `SELECT uid, was, became, attempts, attempted, coalesce(error, ''), at, published_at FROM diary ORDER BY n`

	transactionState = `SELECT coalesce(pg_xact_status($1::text::xid8), 'forgotten')`
	isPrepared       = `SELECT EXISTS (SELECT 1 FROM pg_prepared_xacts WHERE gid = $1)`

	terminateWalsender = `SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL`
	terminateSessions  = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1 AND backend_type = 'client backend'`
	dropSlot   = `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NULL`
	slotStatus = `SELECT coalesce(max(wal_status), 'gone') FROM pg_replication_slots WHERE slot_name = $1`
	writeWAL   = `SELECT pg_logical_emit_message(false, 'chaos', repeat('x', 4000000)), pg_switch_wal()`
	holdXmin   = `SELECT count(*) FROM outbox`
)

func diaryTriggers() (sql []string) {
	for _, t := range tables {
		sql = append(sql,
			fmt.Sprintf(`CREATE TRIGGER diary_update AFTER UPDATE ON %s REFERENCING OLD TABLE AS before NEW TABLE AS after
				FOR EACH STATEMENT EXECUTE FUNCTION keep_diary()`, t),
			fmt.Sprintf(`CREATE TRIGGER diary_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS before
				FOR EACH STATEMENT EXECUTE FUNCTION keep_diary()`, t))
	}
	return sql
}

// insertRows keeps the order of its arrays.
func insertRows(table string) string {
	return fmt.Sprintf(`INSERT INTO %s (topic, key, payload)
		SELECT r.topic, r.key, r.payload::%s FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r (topic, key, payload, n)
		ORDER BY r.n`, table, payloadType(table))
}

func payloadType(table string) string {
	if table == tables[0] {
		return "json"
	}
	return "jsonb"
}

func readRows(table string) string {
	return fmt.Sprintf(`SELECT (payload->>'u')::bigint, id, message_id::text, status FROM %s`, table)
}

func anyPending() string {
	return fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s WHERE status = 'PENDING') OR EXISTS (SELECT 1 FROM %s WHERE status = 'PENDING')`, tables[0], tables[1])
}

func someDead(table string) string {
	return fmt.Sprintf(`SELECT array(SELECT id::text FROM %s WHERE status = 'DEAD' AND topic = $1 ORDER BY random() LIMIT 5)`, table)
}
