/* finding.c: what is looked for in a database: for each finding the question, as SQL over the
 * catalogues, and why it matters.
 *
 * Expressions of the database are read, never evaluated: who asks may have more rights than who
 * wrote them.  A column that only some versions of the server have is read out of to_jsonb(). */
#include "finding.h"

/* The numbers are those of pqtx_subject_kind. */
#define KEYED     (1u << 1)
#define COUNTER   (1u << 2)
#define STOCK     (1u << 3)
#define QUEUE     (1u << 4)
#define INTERVALS (1u << 5)

/* The table, and its columns as they were described. */
#define TABLE                                                                                      \
    "WITH t AS (SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS name"            \
    "  FROM pg_class AS c INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace"                  \
    "  WHERE c.oid = $1::int8::oid),"                                                              \
    " list(role, names) AS (VALUES ('key', $2::text), ('value', $3::text), ('order', $4::text)),"  \
    " col AS (SELECT list.role, u.ord, btrim(u.name) AS wanted, quote_ident(a.attname) AS quoted," \
    "  a.attnum, a.atttypid, a.attnotnull FROM list"                                               \
    "  CROSS JOIN LATERAL unnest(string_to_array(list.names, ',')) WITH ORDINALITY AS u(name, "    \
    "ord)"                                                                                         \
    "  LEFT JOIN pg_attribute AS a ON a.attrelid = $1::int8::oid AND a.attname = btrim(u.name)"    \
    "   AND a.attnum > 0 AND NOT a.attisdropped),"                                                 \
    " many AS (SELECT role, string_agg(quoted, ', ' ORDER BY ord) AS names,"                       \
    "  array_agg(attnum ORDER BY ord) AS numbers, array_agg(attnum ORDER BY attnum) AS sorted"     \
    "  FROM col GROUP BY role) "

#define CONCURRENTLY "CASE t.relkind WHEN 'r' THEN 'CONCURRENTLY ' ELSE '' END"

static const char no_column[] =
    TABLE "SELECT t.name, format('there is no column %I', col.wanted), '' FROM t, col"
          " WHERE col.attnum IS NULL";

/* Not a partial, a deferrable or an invalid one: ON CONFLICT (key) needs it whole. */
static const char key_not_unique[] = TABLE
    "SELECT t.name, format('no unique index is over (%s)', k.names),"
    " format('CREATE UNIQUE INDEX %sON %s (%s)', " CONCURRENTLY ", t.name, k.names)"
    " FROM t, many AS k WHERE k.role = 'key' AND NOT EXISTS (SELECT FROM pg_index AS i"
    "  WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indimmediate"
    "  AND i.indpred IS NULL AND i.indexprs IS NULL AND k.sorted ="
    "  (SELECT array_agg(n ORDER BY n) FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS n))";

static const char key_nullable[] =
    TABLE "SELECT t.name, format('column %s of the key can be NULL', col.quoted),"
          " format('ALTER TABLE %s ALTER COLUMN %s SET NOT NULL', t.name, col.quoted)"
          " FROM t, col WHERE col.role = 'key' AND NOT col.attnotnull";

/* A CHECK of the column or of its domain, as the server writes it, without parentheses, quotes and
 * casts: value >= 0, value > -1, 0 <= value, and what is joined to it by AND. */
static const char no_lower_bound[] = TABLE
    ", bound AS (SELECT col.attnum, CASE k.contypid WHEN 0 THEN"
    "  regexp_replace(col.quoted, '(\\W)', '\\\\\\1', 'g') ELSE 'VALUE' END AS name,"
    "  regexp_replace(pg_get_constraintdef(k.oid), '[()'']|::[a-z]+( [a-z]+)*', '', 'g') AS rule"
    "  FROM t, col INNER JOIN pg_constraint AS k ON k.contype = 'c'"
    "  AND coalesce((to_jsonb(k) ->> 'conenforced')::bool, true)"
    "  AND (k.conrelid = $1::int8::oid OR k.contypid = col.atttypid) WHERE col.role = 'value') "
    "SELECT t.name, format('no CHECK keeps %s from going below 0', col.quoted),"
    " format('ALTER TABLE %s ADD CHECK (%s >= 0)', t.name, col.quoted)"
    " FROM t, col WHERE col.role = 'value' AND NOT EXISTS (SELECT FROM bound AS b"
    "  WHERE b.attnum = col.attnum AND b.rule !~ '\\m(OR|NOT|CASE)\\M' AND (b.rule ~"
    "   concat(' ', b.name, ' (>= [0-9]|> -1\\M|> [0-9])') OR b.rule ~"
    "   concat(' ([0-9.]+ <=|-1 <|[0-9.]+ <) ', b.name, '( |$)')))";

/* Also in an expression or a predicate, which make dependencies.  From PostgreSQL 16 on a BRIN
 * index is no hindrance. */
static const char value_indexed[] = TABLE
    "SELECT format('%s', i.indexrelid::regclass), format('this index of %s is over %s, which each"
    " call changes', t.name, string_agg(col.quoted, ', ' ORDER BY col.ord)), CASE WHEN k.oid IS"
    " NULL THEN format('DROP INDEX %s%s', CASE x.relkind WHEN 'i' THEN 'CONCURRENTLY ' END,"
    " i.indexrelid::regclass) ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', t.name, k.conname)"
    " END FROM t INNER JOIN pg_index AS i ON i.indrelid = t.oid"
    " INNER JOIN pg_class AS x ON x.oid = i.indexrelid INNER JOIN pg_am AS m ON m.oid = x.relam"
    " INNER JOIN col ON col.role = 'value' AND (col.attnum = ANY (i.indkey) OR EXISTS (SELECT"
    "  FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid"
    "  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid"
    "  AND d.refobjsubid = col.attnum))"
    " LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x')"
    " WHERE m.amname <> 'brin' OR current_setting('server_version_num')::int < 160000"
    " GROUP BY i.indexrelid, t.name, x.relkind, k.oid, k.conname";

static const char value_narrow[] = TABLE
    "SELECT t.name, format('%s is of type %s', col.quoted, format_type(col.atttypid, NULL)),"
    " format('ALTER TABLE %s ALTER COLUMN %s TYPE bigint', t.name, col.quoted)"
    " FROM t, col WHERE col.role = 'value' AND col.atttypid IN ('int2'::regtype, 'int4'::regtype)";

/* Of a partitioned table the partitions have the storage. */
static const char fillfactor[] =
    TABLE ", leaf(oid) AS (SELECT t.oid FROM t WHERE t.relkind = 'r' UNION"
          "  SELECT p.relid FROM t, pg_partition_tree(t.oid) AS p WHERE p.isleaf) "
          "SELECT format('%I.%I', n.nspname, c.relname), 'its fillfactor is 100',"
          " format('ALTER TABLE %I.%I SET (fillfactor = 70)', n.nspname, c.relname)"
          " FROM leaf INNER JOIN pg_class AS c ON c.oid = leaf.oid AND c.relkind = 'r'"
          " INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace"
          " WHERE NOT EXISTS (SELECT FROM pg_options_to_table(c.reloptions) AS o"
          "  WHERE o.option_name = 'fillfactor' AND o.option_value <> '100')";

static const char trigger[] =
    TABLE "SELECT t.name, format('trigger %I runs %s', g.tgname, g.tgfoid::regprocedure),"
          " format('ALTER TABLE %s DISABLE TRIGGER %I', t.name, g.tgname)"
          " FROM t INNER JOIN pg_trigger AS g ON g.tgrelid = t.oid"
          " WHERE NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 28 <> 0";

static const char no_queue_index[] = TABLE
    "SELECT t.name, format('no index begins with (%s)', o.names),"
    " format('CREATE INDEX %sON %s (%s)', " CONCURRENTLY ", t.name, o.names)"
    " FROM t, many AS o WHERE o.role = 'order' AND NOT EXISTS (SELECT FROM pg_index AS i"
    "  INNER JOIN pg_class AS x ON x.oid = i.indexrelid INNER JOIN pg_am AS m ON m.oid = x.relam"
    "  WHERE i.indrelid = t.oid AND i.indisvalid AND m.amname = 'btree'"
    "  AND array_to_string((i.indkey::int2[])[0:cardinality(o.numbers) - 1], ' ') ="
    "   array_to_string(o.numbers, ' '))";

static const char no_btree_gist[] = TABLE
    "SELECT t.name, 'the extension btree_gist, by which (' || k.names ||"
    " ') can stand in an exclusion constraint, is not installed', 'CREATE EXTENSION btree_gist'"
    " FROM t, many AS k WHERE k.role = 'key'"
    " AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'btree_gist')";

/* The ranges by &&, the key, or a part of it, by =, and nothing else, which would let more pass.  A
 * key WITHOUT OVERLAPS, from PostgreSQL 18 on, is the same. */
static const char no_exclusion[] = TABLE
    "SELECT t.name, format('no exclusion constraint is over %s', v.names),"
    " format('ALTER TABLE %s ADD EXCLUDE USING gist (%s%s WITH &&)', t.name, (SELECT"
    "  string_agg(col.quoted || ' WITH =, ', '' ORDER BY col.ord) FROM col WHERE col.role = 'key'),"
    "  v.names) FROM t, many AS v WHERE v.role = 'value' AND NOT EXISTS ("
    " SELECT FROM pg_constraint AS k WHERE k.conrelid = t.oid AND k.conexclop IS NOT NULL"
    "  AND v.sorted <@ k.conkey AND NOT EXISTS (SELECT FROM unnest(k.conkey, k.conexclop)"
    "   AS u(attnum, operator) INNER JOIN pg_operator AS o ON o.oid = u.operator WHERE NOT EXISTS ("
    "   SELECT FROM col WHERE col.attnum = u.attnum AND (col.role, o.oprname::text) IN"
    "    (('key', '='), ('value', '&&')))))";

/* ---- of the whole database */

#define WHOLE         "WITH wish AS (SELECT $1::text AS schema, $2::int8 * interval '1 ms' AS old) "
#define IS_OLD(time)  "clock_timestamp() - " time " >= (SELECT old FROM wish)"
#define SECONDS(time) "date_part('epoch', clock_timestamp() - " time ")::int8"

/* Functions with their text, without comments and literals; of BEGIN ATOMIC the server knows what
 * it depends on.  `reads` are names after FROM and its like that are names of tables. */
#define FUNCTIONS                                                                                  \
    WHOLE                                                                                          \
    ", raw AS (SELECT p.oid, p.provolatile, format('%I.%I(%s)', n.nspname, p.proname,"             \
    "  pg_get_function_identity_arguments(p.oid)) AS name, regexp_replace(CASE p.prosrc WHEN ''"   \
    "  THEN regexp_replace(pg_get_functiondef(p.oid), '^.*\\mBEGIN ATOMIC\\M', '')"                \
    "  ELSE p.prosrc END, '--[^\\n]*|/\\*([^*]|\\*+[^*/])*\\*+/|''([^'']|'''')*''', ' ', 'g')"     \
    "   AS body"                                                                                   \
    "  FROM pg_proc AS p INNER JOIN pg_namespace AS n ON n.oid = p.pronamespace"                   \
    "  INNER JOIN pg_language AS l ON l.oid = p.prolang CROSS JOIN wish"                           \
    "  WHERE l.lanname IN ('sql', 'plpgsql') AND p.prokind = 'f' AND p.prorettype NOT IN"          \
    "   ('trigger'::regtype, 'event_trigger'::regtype)"                                            \
    "  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"                              \
    "  AND n.nspname = coalesce(wish.schema, n.nspname)"                                           \
    "  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass"           \
    "   AND d.objid = p.oid AND d.deptype = 'e')),"                                                \
    " tables AS MATERIALIZED (SELECT DISTINCT c.relname::text AS name FROM pg_class AS c"          \
    "  INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace"                                     \
    "  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_'"                       \
    "  AND n.nspname <> 'information_schema'),"                                                    \
    " f AS (SELECT raw.*, (SELECT min(tables.name) FROM regexp_matches(raw.body, "                 \
    "'\\m(?:from|join|"                                                                            \
    "using|update|insert\\s+into|merge\\s+into)\\s+(?:only\\s+)?((?:(?:\"[^\"]+\"|[\\w$]+)\\s*\\." \
    "\\s*)?(?:\"[^\"]+\"|[\\w$]+))', 'gi') AS m(token)"                                            \
    "  CROSS JOIN LATERAL regexp_replace(m.token[1], '^.*\\.\\s*', '') AS last"                    \
    "  INNER JOIN tables ON tables.name = CASE WHEN last LIKE '\"%' THEN btrim(last, '\"')"        \
    "   ELSE lower(last) END) AS reads, (SELECT min(d.refobjid)::regclass::text FROM pg_depend AS" \
    "  d WHERE d.classid = 'pg_proc'::regclass AND d.objid = raw.oid"                              \
    "  AND d.refclassid = 'pg_class'::regclass) AS depends FROM raw) "                             \
    "SELECT f.name, format('it is %s and reads %s', CASE f.provolatile WHEN 'i' THEN 'IMMUTABLE'"  \
    " ELSE 'VOLATILE' END, coalesce(f.depends, quote_ident(f.reads))),"                            \
    " format('ALTER FUNCTION %s STABLE', f.name) FROM f"                                           \
    " WHERE (f.reads IS NOT NULL OR f.depends IS NOT NULL) AND "

static const char immutable_reads[] = FUNCTIONS "f.provolatile = 'i'";

/* No word that writes, locks or hides what it does, and no call of a function that may. */
static const char volatile_only_reads[] = FUNCTIONS
    "f.provolatile = 'v' AND f.body !~* '\\m(insert|update|delete|merge|truncate|copy|execute|"
    "perform|call|lock|share|notify|listen|create|drop|alter|grant|revoke|set|do)\\M'"
    " AND NOT EXISTS (SELECT FROM regexp_matches(f.body, '([\\w$]+)\"?\\s*\\(', 'g') AS m(word)"
    "  INNER JOIN pg_proc AS v ON v.proname = lower(m.word[1]) AND v.provolatile = 'v'"
    "  AND v.oid <> f.oid)";

static const char lock_timeout_set[] = WHOLE
    ", here AS (SELECT oid, datname FROM pg_database WHERE datname = current_database()) "
    "SELECT concat_ws(' in ', 'role ' || quote_ident(r.rolname), 'database ' ||"
    " quote_ident(here.datname)), format('%s is set for it', c.setting), CASE WHEN r.oid IS NULL"
    " THEN format('ALTER DATABASE %I RESET lock_timeout', here.datname) ELSE format('ALTER ROLE %I"
    "%s RESET lock_timeout', r.rolname, ' IN DATABASE ' || quote_ident(here.datname)) END"
    " FROM wish, pg_db_role_setting AS s CROSS JOIN LATERAL unnest(s.setconfig) AS c(setting)"
    " LEFT JOIN pg_roles AS r ON r.oid = s.setrole LEFT JOIN here ON here.oid = s.setdatabase"
    " WHERE c.setting ~ '^lock_timeout=' AND c.setting !~ '=0[a-z]*$'"
    " AND (s.setdatabase = 0 OR here.oid IS NOT NULL)"
    " UNION ALL SELECT 'server', format('lock_timeout=%s%s is in its configuration', setting, "
    "unit),"
    " 'ALTER SYSTEM RESET lock_timeout' FROM pg_settings WHERE name = 'lock_timeout'"
    " AND source = 'configuration file' AND setting <> '0'";

#define WHO                                                                                        \
    "concat_ws(', ', 'user ' || a.usename, 'application ' || nullif(a.application_name, ''),"      \
    " a.state, 'in its transaction for ' || " SECONDS(                                             \
        "a.xact_start") " || ' s',"                                                                \
                        " 'query: ' || left(nullif(a.query, '<insufficient privilege>'), 100))"

/* A role that is not shown times sees how many transactions have begun since. */
static const char old_snapshot[] = WHOLE
    ", oldest AS (SELECT * FROM pg_stat_activity AS a WHERE a.backend_xmin IS NOT NULL"
    " AND a.pid <> pg_backend_pid() AND coalesce(a.datname, current_database()) ="
    " current_database() AND coalesce(a.backend_type, '') <> 'autovacuum worker'"
    " ORDER BY age(a.backend_xmin) DESC, a.xact_start LIMIT 1) "
    "SELECT 'pid ' || a.pid, format('it holds the oldest snapshot, of %s transactions ago: %s',"
    " age(a.backend_xmin), " WHO "), format('SELECT pg_terminate_backend(%s)', a.pid)"
    " FROM oldest AS a WHERE CASE WHEN a.backend_start IS NULL THEN age(a.backend_xmin) > 10000"
    " ELSE " IS_OLD("a.xact_start") " END";

static const char idle_in_transaction[] =
    WHOLE "SELECT 'pid ' || a.pid, format('%s for %s s: %s', a.state, " SECONDS(
        "a.state_change") ", " WHO "), format('SELECT pg_terminate_backend(%s)', a.pid) FROM wish, "
                          "pg_stat_activity AS a"
                          " WHERE a.datname = current_database() AND a.state LIKE 'idle in "
                          "transaction%'"
                          " AND " IS_OLD("a.state_change");

static const char prepared_transaction[] = WHOLE
    "SELECT format('prepared transaction %L', p.gid), format('user %s prepared it %s s ago; %s"
    " transactions have begun since', p.owner, " SECONDS(
        "p.prepared") ", age(p.transaction)),"
                      " format('ROLLBACK PREPARED %L', p.gid) FROM wish, pg_prepared_xacts AS p"
                      " WHERE p.database = current_database() AND " IS_OLD("p.prepared");

static const char replication_slot[] = WHOLE
    "SELECT format('replication slot %L', s.slot_name), format('nobody reads it, and it holds %s,"
    " of %s transactions ago', CASE WHEN s.xmin IS NULL THEN 'catalog_xmin' ELSE 'xmin' END,"
    " greatest(age(s.xmin), age(s.catalog_xmin))),"
    " format('SELECT pg_drop_replication_slot(%L)', s.slot_name)"
    " FROM wish, pg_replication_slots AS s WHERE NOT s.active"
    " AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL)"
    " AND coalesce(s.database, current_database()) = current_database()";

static const char not_seen[] = WHOLE
    "SELECT 'pg_stat_activity', format('of %s sessions of other roles, state, times and queries are"
    " not shown to %I', count(*), current_user), format('GRANT pg_read_all_stats TO %I',"
    " current_user) FROM wish, pg_stat_activity AS a WHERE a.datname = current_database()"
    " AND a.backend_start IS NULL HAVING count(*) > 0";

const struct pqtx__check pqtx__checks[] = {
    {PQTX_FIND_NO_TABLE, PQTX_SEVERITY_ERROR, KEYED | COUNTER | STOCK | QUEUE | INTERVALS,
     no_column, "What was described is not what is there, so the table was not checked further."},
    {PQTX_FIND_KEY_NOT_UNIQUE, PQTX_SEVERITY_ERROR, KEYED | COUNTER | STOCK | QUEUE, key_not_unique,
     "Two sessions can each insert a row of the same key, and a change by the key then meets both; "
     "an upsert cannot work without it."},
    {PQTX_FIND_KEY_NULLABLE, PQTX_SEVERITY_WARNING, KEYED | COUNTER | STOCK | QUEUE | INTERVALS,
     key_nullable,
     "NULL is equal to nothing, so rows with it are never found by the key, and any number of them "
     "can be there."},
    {PQTX_FIND_NO_LOWER_BOUND, PQTX_SEVERITY_ERROR, STOCK, no_lower_bound,
     "A statement that forgets the condition, a program's or a person's, sells what is not "
     "there."},
    {PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, COUNTER | STOCK | QUEUE, value_indexed,
     "Each change writes all indexes anew, and none can be a HOT update, which needs no VACUUM: "
     "table and index grow."},
    {PQTX_FIND_VALUE_NARROW, PQTX_SEVERITY_NOTE, COUNTER | STOCK, value_narrow,
     "The counter ends with an error (22003) when it has reached the type's end."},
    {PQTX_FIND_FILLFACTOR, PQTX_SEVERITY_NOTE, COUNTER | STOCK | QUEUE, fillfactor,
     "A new version of a row finds no room on its page while an old snapshot keeps the earlier "
     "ones "
     "there, and then is no HOT update."},
    {PQTX_FIND_TRIGGER, PQTX_SEVERITY_WARNING, COUNTER | STOCK | QUEUE | INTERVALS, trigger,
     "It runs while the row is locked: whoever waits for the row waits for it too, and what it "
     "locks can make a deadlock."},
    {PQTX_FIND_NO_QUEUE_INDEX, PQTX_SEVERITY_WARNING, QUEUE, no_queue_index,
     "Each claim reads and sorts the whole table, and steps over all that others have locked."},
    {PQTX_FIND_NO_BTREE_GIST, PQTX_SEVERITY_ERROR, INTERVALS, no_btree_gist,
     "Without it a gist index takes ranges, but no plain integers, texts or uuids beside them."},
    {PQTX_FIND_NO_EXCLUSION, PQTX_SEVERITY_ERROR, INTERVALS, no_exclusion,
     "To look first and then insert does not keep two sessions from doing so at once: only the "
     "constraint does."},
    {PQTX_FIND_IMMUTABLE_READS, PQTX_SEVERITY_ERROR, 0, immutable_reads,
     "The planner may call it once and keep its answer, and an index may hold it for ever: what is "
     "decided by it is decided on old data."},
    {PQTX_FIND_VOLATILE_ONLY_READS, PQTX_SEVERITY_NOTE, 0, volatile_only_reads,
     "In a condition it is called for each row and no index serves it; each of its statements sees "
     "another state. STABLE sees that of the statement that calls it: right, unless it is to see "
     "what that has written."},
    {PQTX_FIND_LOCK_TIMEOUT_SET, PQTX_SEVERITY_WARNING, 0, lock_timeout_set,
     "It also ends the waits of migrations, maintenance and people, where nobody expects 55P03. "
     "The "
     "library sets its own for each transaction."},
    {PQTX_FIND_OLD_SNAPSHOT, PQTX_SEVERITY_WARNING, 0, old_snapshot,
     "No row version that it may still see is removed: each change of a hot row makes all that "
     "read "
     "it slower, until it ends."},
    {PQTX_FIND_IDLE_IN_TRANSACTION, PQTX_SEVERITY_WARNING, 0, idle_in_transaction,
     "It keeps every lock that it took, and does nothing with them. "
     "idle_in_transaction_session_timeout, or PQTX_SERVER_DEADLINE, ends such a session."},
    {PQTX_FIND_PREPARED_TRANSACTION, PQTX_SEVERITY_WARNING, 0, prepared_transaction,
     "It keeps its locks and its place in time until somebody ends it, over a restart too; no "
     "timeout does."},
    {PQTX_FIND_REPLICATION_SLOT, PQTX_SEVERITY_WARNING, 0, replication_slot,
     "No row version that its reader may still want is removed, as with an old snapshot, and WAL "
     "is "
     "kept as well."},
    {PQTX_FIND_NOT_SEEN, PQTX_SEVERITY_NOTE, 0, not_seen,
     "Sessions among them that hold locks or an old snapshot are not reported."},
};

const size_t pqtx__check_count = sizeof pqtx__checks / sizeof pqtx__checks[0];

const char *pqtx_finding_name(pqtx_finding_code code)
{
    static const char *const names[] = {
        "none",
        "no_table",
        "key_not_unique",
        "key_nullable",
        "no_lower_bound",
        "value_indexed",
        "value_narrow",
        "fillfactor",
        "trigger",
        "no_queue_index",
        "no_btree_gist",
        "no_exclusion",
        "immutable_reads",
        "volatile_only_reads",
        "lock_timeout_set",
        "old_snapshot",
        "idle_in_transaction",
        "prepared_transaction",
        "replication_slot",
        "not_seen",
    };
    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "unknown";
}

const char *pqtx_severity_name(pqtx_severity severity)
{
    static const char *const names[] = {"none", "note", "warning", "error"};
    return (unsigned)severity < sizeof names / sizeof names[0] ? names[severity] : "unknown";
}
