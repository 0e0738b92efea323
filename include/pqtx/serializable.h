/* serializable.h: what keeps a rule over many rows that no constraint says: SERIALIZABLE by all.
 *
 * The server then lets no two such transactions commit that could not have run one after the other
 * (40001: PQTX_SERIALIZATION, and the runner begins again).  It knows only those that run at this
 * level: one writer at READ COMMITTED beside them, and the rule is broken without an error.  So
 * a helper can ask for the level, and a table can refuse writers of a lower one.  gate.h saves
 * retries, and pqtx_predicate_locks() tells why there are too many. */
#ifndef PQTX_SERIALIZABLE_H
#define PQTX_SERIALIZABLE_H

#include <pqtx/options.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For a helper that is sound only there: PQTX_WRONG_ISOLATION, and the attempt is marked, unless
 * the transaction runs at this level or above.  The server is asked, so that the session's default
 * and a SET TRANSACTION count; it can be queued in pipeline mode, else it costs a round trip.
 * As a first statement it takes the snapshot.  PQTX_MISUSE for what is no level. */
PQTX_API pqtx_status pqtx_require_isolation(pqtx_tx *tx, pqtx_isolation least);

/* Writes the DDL, several statements, by which a table refuses to be written below SERIALIZABLE:
 * INSERT, UPDATE, DELETE, MERGE, COPY FROM and TRUNCATE fail with SQLSTATE PQ094, for this library
 * PQTX_WRONG_ISOLATION, before they change a row.  Names are quoted, so they may be any; `schema`
 * NULL: the search_path of whoever runs it.  Idempotent; run it in one transaction, since in
 * between the table is open.  It makes a trigger function pqtx_serializable() in the schema and a
 * trigger of this name.
 *
 * Always terminated if size > 0.  Returns the length it would have without the limit, as snprintf
 * does; at most PQTX_SERIALIZABLE_DDL with the NUL.  0 if `table` is missing, or a name is empty or
 * longer than 63 bytes.
 *
 * The trigger sees the table that a statement names: of a partitioned table, and of one that others
 * inherit from, each child needs its own.  Where session_replication_role is replica (logical
 * replication) it does not fire.  It refuses no reader: who reads below SERIALIZABLE, decides, and
 * writes elsewhere, is not found out. */
#define PQTX_SERIALIZABLE_DDL 2048
PQTX_API size_t pqtx_serializable_ddl(const char *schema, const char *table, char *buffer,
                                      size_t size);

/* How much of one table or index a transaction is held to have read: so many tuples, so many pages,
 * and whether all of it. */
typedef struct pqtx_predicate_lock {
    size_t size; /* start from PQTX_PREDICATE_LOCK */
    int64_t tuples;
    int64_t pages;
    int32_t whole;    /* 1: every write to it by others is a possible conflict */
    int32_t is_index; /* 1: `relation` is an index */
    char schema[64];
    char relation[64];
} pqtx_predicate_lock;

#define PQTX_PREDICATE_LOCK PQTX_SIZED(pqtx_predicate_lock)

/* Predicate locks (SIReadLock in pg_locks) of this transaction so far: for diagnosis, at the end of
 * a body that fails with PQTX_SERIALIZATION too often.  *count is how many tables and indexes have
 * some, those that are locked as a whole first, and `locks` gets the first of them, at most
 * `capacity`, each with the size of locks[0]; NULL with capacity 0 only counts.  Below
 * SERIALIZABLE, and for a read-only transaction that is proven safe, there are none.
 *
 * A table that is locked as a whole although few rows were read: a sequential scan did it (the
 * statement needs an index, or ANALYZE; a small table is scanned even so), or its pages or tuples
 * went over max_pred_locks_per_relation (-2 is max_pred_locks_per_transaction / 2) or
 * max_pred_locks_per_page (2) and were promoted: keep rows that are read together in neighbouring
 * pages, or raise those.  Measured with 8 sessions: 87 % of the transactions failed by a
 * sequential scan, 76 % where an index led to rows on more pages than the limit, 1 % otherwise.
 *
 * It reads the whole of pg_locks, which is not for every transaction.  In pipeline mode it sends
 * what is queued and waits. */
PQTX_API pqtx_status pqtx_predicate_locks(pqtx_tx *tx, pqtx_predicate_lock *locks, size_t capacity,
                                          size_t *count);

#ifdef __cplusplus
}
#endif

#endif
