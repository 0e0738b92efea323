/* fault.c: the names of the points at which a hook may let something go wrong. */
#include <pqtx/fault.h>

const char *pqtx_point_name(pqtx_point point)
{
    static const char *const names[] = {
        "none",         "statement",   "statement_sent",  "commit",
        "commit_begun", "commit_sent", "commit_answered", "rollback",
    };
    return (unsigned)point < sizeof names / sizeof names[0] ? names[point] : "unknown";
}
