/* bench_sql.h: the statements that all contestants share, so that the server's work is the same. */
#ifndef PQTX_TESTS_BENCH_SQL_H
#define PQTX_TESTS_BENCH_SQL_H

#define LOCK_TIMEOUT_MS "5000" /* pqtx's default */

#define SQL_TAKE                                                                                   \
    "UPDATE bench_stock SET left_over = left_over - $2 WHERE id = $1 AND left_over >= $2"
#define SQL_GIVE  "UPDATE bench_stock SET left_over = left_over + $2 WHERE id = $1"
#define SQL_READ  "SELECT left_over FROM bench_stock WHERE id = $1 FOR NO KEY UPDATE"
#define SQL_WRITE "UPDATE bench_stock SET left_over = $2 WHERE id = $1"
#define SQL_UPSERT                                                                                 \
    "INSERT INTO bench_counter VALUES ($1, $2) ON CONFLICT (id)"                                   \
    " DO UPDATE SET value = bench_counter.value + excluded.value RETURNING value"

#endif
