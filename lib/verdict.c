/* verdict.c: calls of one flight whose last statement tells what they came to.
 *
 * Where the answer is waited for, the verdict is a column.  Where COMMIT is in the same flight that
 * would come too late, so the statement fails on the server.  But an error is a line in the
 * server's log, and a call that is a transaction of its own and was told "no" has changed nothing:
 * it commits that, unless an event's row would stay. */
#include "verdict.h"
#include "fly.h"
#include "one.h"

#include <pqtx/pipeline.h>

#include <stdio.h>
#include <stdlib.h>

#define STATEMENTS_MAX 4

/* The texts of a question, for one connection, and its word. */
struct texts {
    char *sql[STATEMENTS_MAX];
    size_t count;
    char word[32];
};

static void free_texts(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->sql[i]);
}

static pqtx_status add_text(pqtx_tx *tx, struct texts *texts, const struct pqtx__quoted *names,
                            const char *template)
{
    char *sql = pqtx__names_text(names, template);
    if (!sql)
        return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the statement");
    texts->sql[texts->count++] = sql;
    return PQTX_OK;
}

/* The word is of this call alone, and is a value, so that the text is the same each time. */
static pqtx_status write_texts(pqtx_tx *tx, const struct pqtx__question *q, enum pqtx__form form,
                               struct texts *texts)
{
    struct pqtx__quoted names;
    const char *why;
    texts->count = 0;
    pqtx_status status = pqtx__names_quote(q->names, tx->wire->conn, &names, &why);
    if (status != PQTX_OK)
        return pqtx__fail(tx, status, "%s", why);
    for (size_t i = 0; status == PQTX_OK && q->verdict->first[i]; i++)
        status = add_text(tx, texts, &names, q->verdict->first[i]);
    if (status == PQTX_OK)
        status = add_text(tx, texts, &names, q->verdict->last[form]);
    pqtx__names_free(&names);
    if (status != PQTX_OK)
        free_texts(texts);
    snprintf(texts->word, sizeof texts->word, "%llu.%u", (unsigned long long)tx->flights + 1,
             tx->call_count);
    if (q->verdict->first[0])
        q->values[q->count - 1] = pqtx_text(texts->word);
    return status;
}

/* ---- waiting for the answer */

static void read_values(const PGresult *answer, int64_t *out, size_t count)
{
    for (int i = 0; i < PQntuples(answer) && (size_t)i < count; i++)
        pqtx_get_int(answer, i, 0, &out[i]);
}

static pqtx_status judge(pqtx_tx *tx, const struct pqtx__question *q, const PGresult *answer)
{
    int64_t code;
    const char *why = "the statement was answered in a way that no server answers it";
    read_values(answer, q->out, q->out_count);
    pqtx_status status = pqtx_get_int(answer, 0, 1, &code);
    if (status == PQTX_OK && code == 0)
        return PQTX_OK;
    if (status == PQTX_OK)
        status = q->meaning(code, &why);
    return pqtx__fail(tx, status, "%s", why);
}

static pqtx_status fly(pqtx_tx *tx, const struct pqtx__question *q, const struct texts *texts)
{
    struct pqtx__params params;
    struct pqtx__statement statements[STATEMENTS_MAX];
    PGresult *results[STATEMENTS_MAX];
    pqtx_status status = pqtx__tx_encode(tx, &params, q->count, q->values);
    if (status != PQTX_OK)
        return status;
    for (size_t i = 0; i < texts->count; i++)
        statements[i] = (struct pqtx__statement){texts->sql[i], &params};
    status = pqtx__fly(tx, statements, texts->count, results);
    if (status == PQTX_OK)
        status = judge(tx, q, results[texts->count - 1]);
    for (size_t i = 0; i < texts->count; i++)
        PQclear(results[i]);
    pqtx__params_free(&params);
    return status;
}

static pqtx_status wait_for(pqtx_tx *tx, const struct pqtx__question *q)
{
    struct texts texts;
    pqtx_status status = write_texts(tx, q, PQTX__PLAIN, &texts);
    if (status != PQTX_OK)
        return status;
    status = fly(tx, q, &texts);
    free_texts(&texts);
    return status;
}

/* ---- queued */

static pqtx_status add(pqtx_tx *tx, const struct pqtx__question *q, const struct texts *texts)
{
    struct pqtx__request request = {.rule = {PQTX__COUNT_AT_MOST, INT64_MAX},
                                    .meaning = q->meaning,
                                    .integers = q->out,
                                    .integer_count = q->out_count};
    uint32_t call;
    pqtx_status status = pqtx__call_open(tx, &request, &call);
    for (size_t i = 0; status == PQTX_OK && i < texts->count; i++)
        status = pqtx__call_add(tx, call,
                                &(struct pqtx__request){.sql = texts->sql[i],
                                                        .kind = pqtx__statement_kind(texts->sql[i]),
                                                        .count = q->count,
                                                        .values = q->values},
                                i + 1 == texts->count);
    return status == PQTX_OK ? pqtx__call_close(tx) : status;
}

static pqtx_status queue(pqtx_tx *tx, const struct pqtx__question *q, enum pqtx__form form)
{
    struct texts texts;
    pqtx_status status = write_texts(tx, q, form, &texts);
    if (status != PQTX_OK)
        return status;
    status = add(tx, q, &texts);
    free_texts(&texts);
    return status;
}

static pqtx_status ask_in_body(pqtx_tx *tx, const struct pqtx__question *q)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = tx->pipelined ? queue(tx, q, PQTX__STRICT) : wait_for(tx, q);
    pqtx__tx_leave(tx);
    return status;
}

/* ---- a transaction of its own */

/* After a commit.  Where that was found out afterwards, the answer was lost. */
static pqtx_status say(const pqtx_tx *tx, const struct pqtx__question *q, pqtx_error *error)
{
    const PGresult *answer;
    const char *why = "";
    int64_t code = 0;
    if (pqtx_answer(tx, pqtx_queued(tx) - 1, &answer, NULL) != PQTX_OK || PQnfields(answer) < 2 ||
        pqtx_get_int(answer, 0, 1, &code) != PQTX_OK || code == 0)
        return PQTX_OK;
    pqtx_status status = q->meaning(code, &why);
    return pqtx__error_report(error, status, why);
}

static void attempt(pqtx_tx *tx, const struct pqtx__question *q)
{
    pqtx_status status = pqtx__one_begin(tx);
    if (status == PQTX_OK)
        status = pqtx__tx_enter(tx);
    if (status == PQTX_OK) {
        queue(tx, q, tx->proof.event_id ? PQTX__STRICT : PQTX__MILD);
        pqtx__tx_leave(tx);
    }
    pqtx_commit(tx);
}

static pqtx_status ask_now(struct pqtx__way way, const struct pqtx__question *q)
{
    if (!pqtx__error_is_open(way.error))
        return PQTX_MISUSE;
    pqtx_tx *tx = pqtx_new(way.pool, way.options);
    if (!tx)
        return pqtx__error_report(way.error, PQTX_NO_MEMORY, "no memory for a transaction");
    tx->claim_rides = tx->proof.event_id != NULL;
    while (pqtx_attempt(tx))
        attempt(tx, q);
    pqtx_status status = pqtx_result(tx);
    pqtx_get_error(tx, way.error);
    if (status == PQTX_OK)
        status = say(tx, q, way.error);
    pqtx_free(tx);
    return status;
}

/* ---- either */

pqtx_status pqtx__ask_nothing(struct pqtx__way way, pqtx_status status, const char *why)
{
    if (way.now && !pqtx__error_is_open(way.error))
        return PQTX_MISUSE;
    if (way.now)
        return pqtx__error_report(way.error, status, why);
    pqtx_status mark = pqtx__tx_enter(way.tx);
    if (mark != PQTX_OK)
        return mark;
    if (status != PQTX_OK)
        pqtx__fail(way.tx, status, "%s", why);
    pqtx__tx_leave(way.tx);
    return status;
}

pqtx_status pqtx__ask(struct pqtx__way way, const struct pqtx__question *q, const char *fault)
{
    if (fault)
        return pqtx__ask_nothing(way, PQTX_MISUSE, fault);
    return way.now ? ask_now(way, q) : ask_in_body(way.tx, q);
}
