#ifndef PQTX_LIB_STATEMENT_H
#define PQTX_LIB_STATEMENT_H

/* What a statement is, by its first word. */
enum pqtx__kind {
    PQTX__KIND_OTHER,   /* perhaps one that needs, or must not have, a transaction block */
    PQTX__KIND_READ,    /* SELECT, VALUES, TABLE */
    PQTX__KIND_WRITE,   /* INSERT, UPDATE, DELETE */
    PQTX__KIND_PLAIN,   /* WITH, MERGE */
    PQTX__KIND_CALL,    /* outside a transaction block it could commit */
    PQTX__KIND_RUNNER,  /* BEGIN, COMMIT, … */
    PQTX__KIND_PREPARE, /* perhaps TRANSACTION */
    PQTX__KIND_COPY
};

enum pqtx__kind pqtx__statement_kind(const char *sql);

/* Whether such a one needs no transaction block, and does in one what it does without. */
int pqtx__kind_is_plain(enum pqtx__kind kind);

/* Why the runner must not send this statement, of this kind, for a body, or NULL. */
const char *pqtx__statement_fault(const char *sql, enum pqtx__kind kind);

/* Whether an INSERT, UPDATE or DELETE has a RETURNING clause. */
int pqtx__statement_returns(const char *sql);

/* Whether a SELECT has a locking clause, and whether it has a FROM, which TABLE need not. */
int pqtx__statement_locks(const char *sql);
int pqtx__statement_has_from(const char *sql);

/* Where it begins, behind empty statements, and where it ends: at its semicolon, or with the text;
 * and whether nothing follows the end. */
const char *pqtx__statement_begin(const char *sql);
const char *pqtx__statement_end(const char *sql);
int pqtx__statement_is_alone(const char *end);

/* Whether it takes a snapshot, so that a question behind it cannot move that; by its first word,
 * and false where that is not certain. */
int pqtx__statement_reads(const char *sql);

#endif
