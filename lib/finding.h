#ifndef PQTX_LIB_FINDING_H
#define PQTX_LIB_FINDING_H

#include <pqtx/finding.h>

/* One thing that is looked for.  `kinds` has a bit, 1 << kind, for each kind of table that it is
 * looked for in; 0: in the whole database.
 *
 * The question is asked under the search_path "pg_catalog, pg_temp" and answers object, what and
 * mend.  Its parameters: of a table its oid, and the lists of key, value and order; of the database
 * the schema that is wanted, or NULL, and how many milliseconds are old. */
struct pqtx__check {
    pqtx_finding_code code;
    pqtx_severity severity;
    unsigned kinds;
    const char *sql, *why;
};

extern const struct pqtx__check pqtx__checks[];
extern const size_t pqtx__check_count;

#endif
