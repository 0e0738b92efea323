/* finding.h: something about a database that will make concurrent writes wrong or slow. */
#ifndef PQTX_FINDING_H
#define PQTX_FINDING_H

#include <pqtx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_severity {
    PQTX_SEVERITY_NONE = 0,
    PQTX_SEVERITY_NOTE = 1,    /* worth to know */
    PQTX_SEVERITY_WARNING = 2, /* slow, or in the way of others */
    PQTX_SEVERITY_ERROR = 3,   /* data can become wrong, or a call cannot work */
    PQTX_SEVERITY_MAX = 0x7fffffff
} pqtx_severity;

/* Codes are added, never changed or taken away.  In brackets: of which kinds of tables, schema.h;
 * the others are of the whole database. */
typedef enum pqtx_finding_code {
    PQTX_FIND_NONE = 0,
    PQTX_FIND_NO_TABLE = 1,         /* error [all]: the table, or a column of it, is not there */
    PQTX_FIND_KEY_NOT_UNIQUE = 2,   /* error [all but intervals]: no unique index of just the key */
    PQTX_FIND_KEY_NULLABLE = 3,     /* warning [all]: NULLs in a key are never equal */
    PQTX_FIND_NO_LOWER_BOUND = 4,   /* error [stock]: no CHECK (value >= 0) */
    PQTX_FIND_VALUE_INDEXED = 5,    /* warning [counter, stock, queue]: no change can be HOT */
    PQTX_FIND_VALUE_NARROW = 6,     /* note [counter, stock]: an integer of less than 64 bits */
    PQTX_FIND_FILLFACTOR = 7,       /* note [counter, stock, queue]: pages are filled to the brim */
    PQTX_FIND_TRIGGER = 8,          /* warning [counter, stock, queue, intervals] */
    PQTX_FIND_NO_QUEUE_INDEX = 9,   /* warning [queue]: none in the order of claiming */
    PQTX_FIND_NO_BTREE_GIST = 10,   /* error [intervals with a key]: the extension is missing */
    PQTX_FIND_NO_EXCLUSION = 11,    /* error [intervals]: nothing keeps two from overlapping */
    PQTX_FIND_IMMUTABLE_READS = 12, /* error: an IMMUTABLE function reads tables */
    PQTX_FIND_VOLATILE_ONLY_READS = 13,  /* note: a VOLATILE function could be STABLE */
    PQTX_FIND_LOCK_TIMEOUT_SET = 14,     /* warning: for a role, the database or the server */
    PQTX_FIND_OLD_SNAPSHOT = 15,         /* warning: the session that keeps VACUUM back */
    PQTX_FIND_IDLE_IN_TRANSACTION = 16,  /* warning */
    PQTX_FIND_PREPARED_TRANSACTION = 17, /* warning */
    PQTX_FIND_REPLICATION_SLOT = 18,     /* warning: nobody reads it, and it keeps VACUUM back */
    PQTX_FIND_NOT_SEEN = 19,             /* note: this role is not shown it */
    PQTX_FIND_MAX = 0x7fffffff
} pqtx_finding_code;

/* Flat and of fixed size.  Names in it are quoted where SQL wants that, and control bytes are shown
 * as "?".  `what` of a session holds the beginning of its query. */
typedef struct pqtx_finding {
    size_t size;
    pqtx_finding_code code;
    pqtx_severity severity;
    char object[256]; /* "public.stock", "role ann", "pid 4711" */
    char what[512];   /* what is so: "no unique index is over (name)" */
    char why[512];    /* why that is bad */
    char mend[512]; /* the statement that mends it, to be judged before it is run; empty also where
                     * it would not fit, or has control bytes */
} pqtx_finding;

#define PQTX_FINDING PQTX_SIZED(pqtx_finding)

/* "key_not_unique", "warning"; "unknown" for a number that is none.  Static text, never NULL. */
PQTX_API const char *pqtx_finding_name(pqtx_finding_code code);
PQTX_API const char *pqtx_severity_name(pqtx_severity severity);

#ifdef __cplusplus
}
#endif

#endif
