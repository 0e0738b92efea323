/* check_options.c: a caller's options, checked and completed. */
#include "options.h"
#include "clock.h"
#include "support.h"

#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))
#define SIZED        .size = sizeof(pqtx_options)
#define POOL_SIZED   .size = sizeof(pqtx_pool_options)
#define MS_TOO_MUCH  INT64_C(2147483648)

static int64_t stand_still(void *arg)
{
    (void)arg;
    return 0;
}

static int do_not_wait(void *arg, int fd, int events, int64_t timeout_us)
{
    (void)arg;
    (void)fd;
    (void)timeout_us;
    return events;
}

static uint64_t choose_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static const pqtx_clock whole_clock = {.size = sizeof(pqtx_clock),
                                       .now_us = stand_still,
                                       .wait = do_not_wait,
                                       .random = choose_nothing};
static const pqtx_clock sizeless_clock = {
    .now_us = stand_still, .wait = do_not_wait, .random = choose_nothing};
static const pqtx_clock timeless_clock = {
    .size = sizeof(pqtx_clock), .wait = do_not_wait, .random = choose_nothing};

static void watch(const pqtx_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

static bool is_filled(const void *from, size_t len, unsigned char with)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    while (i < len && bytes[i] == with)
        i++;
    return i == len;
}

static const pqtx_constraint whole[] = {{"a", PQTX_USER}, {"b", (pqtx_status)INT32_MAX}};
static const pqtx_constraint nameless[] = {{"a", PQTX_USER}, {NULL, PQTX_USER}};
static const pqtx_constraint empty_name[] = {{"", PQTX_USER}};
static const pqtx_constraint long_name[] = {
    {"a_name_of_64_bytes______________________________________________", PQTX_USER}};
static const pqtx_constraint not_ours[] = {{"a", (pqtx_status)(PQTX_USER - 1)}};
static const pqtx_constraint success[] = {{"a", PQTX_OK}};

static pqtx_evidence sizeless_evidence;
static pqtx_ticket sizeless_ticket;

static const pqtx_options wrong[] = {
    {.size = 0},
    {.size = 1},
    {.size = sizeof(size_t) - 1},
    {SIZED, .isolation = (pqtx_isolation)4},
    {SIZED, .isolation = (pqtx_isolation)-1},
    {SIZED, .isolation = PQTX_ISO_MAX},
    {SIZED, .access = (pqtx_access)4},
    {SIZED, .access = (pqtx_access)-1},
    {SIZED, .access = PQTX_ACCESS_MAX},
    {SIZED, .lock_timeout_ms = -2},
    {SIZED, .lock_timeout_ms = INT64_MIN},
    {SIZED, .lock_timeout_ms = MS_TOO_MUCH},
    {SIZED, .statement_timeout_ms = -1},
    {SIZED, .statement_timeout_ms = MS_TOO_MUCH},
    {SIZED, .statement_timeout_ms = INT64_MAX},
    {SIZED, .deadline_ms = -1},
    {SIZED, .deadline_ms = MS_TOO_MUCH},
    {SIZED, .deadline_ms = INT64_MIN},
    {SIZED, .max_attempts = -1},
    {SIZED, .max_attempts = INT32_MIN},
    {SIZED, .flags = 0x20},
    {SIZED, .flags = 0x80000000},
    {SIZED, .flags = PQTX_PIN_SNAPSHOT, .isolation = PQTX_ISO_READ_COMMITTED},
    {SIZED, .wait_first_ms = -1},
    {SIZED, .wait_first_ms = MS_TOO_MUCH},
    {SIZED, .wait_max_ms = -1},
    {SIZED, .wait_max_ms = MS_TOO_MUCH},
    {SIZED, .retry_mask = 0x200},
    {SIZED, .retry_mask = 0x40000000},
    {SIZED, .in_doubt = (pqtx_doubt)4},
    {SIZED, .in_doubt = (pqtx_doubt)-1},
    {SIZED, .in_doubt = PQTX_DOUBT_MAX},
    {SIZED, .resolve_ms = -1},
    {SIZED, .resolve_ms = MS_TOO_MUCH},
    {SIZED, .evidence = &sizeless_evidence},
    {SIZED, .ticket = &sizeless_ticket},
    {SIZED, .clock = &sizeless_clock},
    {SIZED, .clock = &timeless_clock},
    {SIZED, .constraint_count = 1},
    {SIZED, .constraints = nameless, .constraint_count = 2},
    {SIZED, .constraints = empty_name, .constraint_count = 1},
    {SIZED, .constraints = long_name, .constraint_count = 1},
    {SIZED, .constraints = not_ours, .constraint_count = 1},
    {SIZED, .constraints = success, .constraint_count = 1},
    {SIZED, .gate_key = 1},
};

static const pqtx_options right[] = {
    {SIZED},
    {SIZED, .isolation = PQTX_ISO_SERIALIZABLE, .access = PQTX_ACCESS_DEFERRABLE},
    {SIZED, .isolation = PQTX_ISO_READ_COMMITTED, .access = PQTX_ACCESS_READ_WRITE},
    {SIZED, .isolation = PQTX_ISO_REPEATABLE_READ, .access = PQTX_ACCESS_READ_ONLY},
    {SIZED, .lock_timeout_ms = PQTX_NO_TIMEOUT},
    {SIZED, .lock_timeout_ms = 1, .statement_timeout_ms = 1, .deadline_ms = 1},
    {SIZED, .lock_timeout_ms = INT32_MAX, .statement_timeout_ms = INT32_MAX},
    {SIZED, .deadline_ms = INT32_MAX, .max_attempts = INT32_MAX},
    {SIZED, .wait_first_ms = INT32_MAX, .wait_max_ms = INT32_MAX},
    {SIZED, .wait_first_ms = 1, .wait_max_ms = 1, .max_attempts = 1},
    {SIZED, .flags = PQTX_PIN_SNAPSHOT | PQTX_LOCK_ANY_ISOLATION | PQTX_SERVER_DEADLINE},
    {SIZED, .flags = PQTX_PIPELINE},
    {SIZED, .flags = PQTX_NAME_BLOCKER},
    {SIZED, .in_doubt = PQTX_DOUBT_REPORT, .resolve_ms = 1},
    {SIZED, .in_doubt = PQTX_DOUBT_XID, .resolve_ms = INT32_MAX},
    {SIZED, .in_doubt = PQTX_DOUBT_TOKEN},
    {SIZED, .event_id = "one", .fingerprint = "of it", .fingerprint_len = 5},
    {SIZED, .once_schema = "Once_1"},
    {SIZED, .flags = PQTX_PIN_SNAPSHOT, .isolation = PQTX_ISO_SERIALIZABLE},
    {SIZED, .retry_mask = PQTX_RETRY_NOTHING},
    {SIZED, .retry_mask = PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE | PQTX_RETRY_OVERLAP},
    {SIZED, .clock = &whole_clock},
    {SIZED, .constraints = whole, .constraint_count = 2},
    {SIZED, .constraints = nameless, .constraint_count = 1},
    {SIZED, .constraints = nameless},
};

/* A pool that connects to nothing, for the calls that want one. */
static pqtx_pool *lazy_pool(void)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    options.flags = PQTX_POOL_LAZY;
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, NULL), PQTX_OK);
    return pool;
}

/* What a transaction with these options says of them. */
static pqtx_status status_of_new(const pqtx_options *options)
{
    pqtx_pool *pool = lazy_pool();
    pqtx_tx *tx = pqtx_new(pool, options);
    pqtx_error error = PQTX_ERROR;
    ck_assert_ptr_nonnull(tx);
    ck_assert_int_eq(pqtx_get_error(tx, &error), PQTX_OK);
    ck_assert_int_eq(error.status != PQTX_OK, error.message[0] != '\0');
    ck_assert_int_eq(pqtx_attempts(tx), 0);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE); /* refused, or not ended */
    ck_assert_int_eq(pqtx_get_outcome(tx),
                     error.status == PQTX_OK ? PQTX_OUTCOME_OPEN : PQTX_OUTCOME_ROLLED_BACK);
    if (error.status != PQTX_OK)
        ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    pqtx_pool_close(pool);
    return error.status;
}

static void assert_defaults(const pqtx_options *read)
{
    ck_assert_int_eq(read->isolation, PQTX_ISO_DEFAULT);
    ck_assert_int_eq(read->access, PQTX_ACCESS_DEFAULT);
    ck_assert_int_eq(read->lock_timeout_ms, 5000);
    ck_assert_int_eq(read->statement_timeout_ms, 0);
    ck_assert_int_eq(read->deadline_ms, 30000);
    ck_assert_int_eq(read->max_attempts, 10);
    ck_assert_uint_eq(read->flags, 0);
    ck_assert_int_eq(read->wait_first_ms, 5);
    ck_assert_int_eq(read->wait_max_ms, 500);
    ck_assert_uint_eq(read->retry_mask, PQTX_RETRY_DEFAULT);
    ck_assert_int_eq(read->in_doubt, PQTX_DOUBT_DEFAULT);
    ck_assert_int_eq(read->resolve_ms, 5000);
    ck_assert_ptr_null(read->event_id);
    ck_assert_ptr_null(read->fingerprint);
    ck_assert_ptr_null(read->once_schema);
    ck_assert_ptr_null(read->evidence);
    ck_assert_ptr_null(read->ticket);
    ck_assert(!read->fault);
    ck_assert(!read->observer);
    ck_assert_ptr_null(read->observer_arg);
    ck_assert_ptr_eq(read->clock, pqtx__clock(NULL));
    ck_assert_ptr_null(read->constraints);
    ck_assert_uint_eq(read->constraint_count, 0);
}

START_TEST(a_wrong_option_is_refused)
{
    pqtx_options read;
    const char *why = NULL;
    ck_assert_int_eq(pqtx__options_read(&read, &wrong[_i], &why), PQTX_MISUSE);
    ck_assert_ptr_nonnull(why);
    assert_defaults(&read);
    ck_assert_int_eq(status_of_new(&wrong[_i]), PQTX_MISUSE);
}
END_TEST

START_TEST(a_right_option_is_taken)
{
    pqtx_options read;
    const char *why = "";
    ck_assert_msg(pqtx__options_read(&read, &right[_i], &why) == PQTX_OK, "%s", why);
    ck_assert_ptr_null(why);
    ck_assert_int_eq(status_of_new(&right[_i]), PQTX_OK);
}
END_TEST

START_TEST(what_is_left_out_has_its_default)
{
    pqtx_options none = PQTX_OPTIONS, read;
    const char *why;
    ck_assert_int_eq(pqtx__options_read(&read, &none, &why), PQTX_OK);
    assert_defaults(&read);
    ck_assert_int_eq(pqtx__options_read(&read, NULL, &why), PQTX_OK);
    assert_defaults(&read);
    ck_assert_int_eq(status_of_new(NULL), PQTX_OK);
}
END_TEST

START_TEST(what_is_given_is_kept)
{
    int arg = 0;
    const pqtx_options given = {
        SIZED,
        .isolation = PQTX_ISO_REPEATABLE_READ,
        .access = PQTX_ACCESS_READ_ONLY,
        .lock_timeout_ms = 1,
        .statement_timeout_ms = 2,
        .deadline_ms = 3,
        .max_attempts = 4,
        .flags = PQTX_PIN_SNAPSHOT,
        .wait_first_ms = 6,
        .wait_max_ms = 7,
        .retry_mask = PQTX_RETRY_BUSY,
        .observer = watch,
        .observer_arg = &arg,
        .clock = &whole_clock,
        .constraints = whole,
        .constraint_count = 2,
    };
    pqtx_options read;
    const char *why;
    ck_assert_int_eq(pqtx__options_read(&read, &given, &why), PQTX_OK);
    ck_assert_int_eq(read.isolation, PQTX_ISO_REPEATABLE_READ);
    ck_assert_int_eq(read.access, PQTX_ACCESS_READ_ONLY);
    ck_assert_int_eq(read.lock_timeout_ms, 1);
    ck_assert_int_eq(read.statement_timeout_ms, 2);
    ck_assert_int_eq(read.deadline_ms, 3);
    ck_assert_int_eq(read.max_attempts, 4);
    ck_assert_uint_eq(read.flags, PQTX_PIN_SNAPSHOT);
    ck_assert_int_eq(read.wait_first_ms, 6);
    ck_assert_int_eq(read.wait_max_ms, 7);
    ck_assert_uint_eq(read.retry_mask, PQTX_RETRY_BUSY);
    ck_assert(read.observer == watch);
    ck_assert_ptr_eq(read.observer_arg, &arg);
    ck_assert_ptr_eq(read.clock, &whole_clock);
    ck_assert_ptr_eq(read.constraints, whole);
    ck_assert_uint_eq(read.constraint_count, 2);
}
END_TEST

/* The options of a version to come. */
struct longer {
    pqtx_options known;
    unsigned char unknown[24];
};

START_TEST(options_of_a_newer_version_may_leave_out_what_is_new)
{
    struct longer given = {.known = {.size = sizeof given, .deadline_ms = 77}};
    pqtx_options read;
    const char *why;
    ck_assert_int_eq(pqtx__options_read(&read, &given.known, &why), PQTX_OK);
    ck_assert_int_eq(read.deadline_ms, 77);
    ck_assert_uint_eq(read.size, sizeof read);
    ck_assert_int_eq(status_of_new(&given.known), PQTX_OK);
}
END_TEST

START_TEST(options_of_a_newer_version_may_not_use_what_is_new)
{
    for (size_t i = 0; i < sizeof(((struct longer *)0)->unknown); i++) {
        struct longer given = {.known = {.size = sizeof given, .deadline_ms = 77}};
        pqtx_options read;
        const char *why;
        given.unknown[i] = 1;
        ck_assert_int_eq(pqtx__options_read(&read, &given.known, &why), PQTX_MISUSE);
        ck_assert_ptr_nonnull(strstr(why, "newer"));
        assert_defaults(&read);
        ck_assert_int_eq(status_of_new(&given.known), PQTX_MISUSE);
    }
}
END_TEST

START_TEST(options_of_an_older_version_are_completed)
{
    pqtx_options given = {.isolation = PQTX_ISO_SERIALIZABLE, .lock_timeout_ms = 12}, read;
    const char *why;
    given.size = offsetof(pqtx_options, deadline_ms);
    memset((char *)&given + given.size, 0xee, sizeof given - given.size);
    ck_assert_int_eq(pqtx__options_read(&read, &given, &why), PQTX_OK);
    ck_assert_int_eq(read.lock_timeout_ms, 12);
    ck_assert_int_eq(read.isolation, PQTX_ISO_SERIALIZABLE);
    read.lock_timeout_ms = 5000;
    read.isolation = PQTX_ISO_DEFAULT;
    assert_defaults(&read);
    ck_assert_int_eq(status_of_new(&given), PQTX_OK);

    given.size = sizeof given.size;
    ck_assert_int_eq(pqtx__options_read(&read, &given, &why), PQTX_OK);
    assert_defaults(&read);
}
END_TEST

/* One that was never set: there cannot be so much to read. */
START_TEST(a_size_beyond_belief_is_refused_unread)
{
    static const pqtx_options given = {.size = SIZE_MAX / 2};
    static const pqtx_pool_options pool_given = {.size = SIZE_MAX / 2};
    pqtx_options read;
    pqtx_pool_options pool_read;
    const char *why = NULL;
    ck_assert_int_eq(pqtx__options_read(&read, &given, &why), PQTX_MISUSE);
    ck_assert_ptr_nonnull(why);
    ck_assert_int_eq(pqtx__pool_options_read(&pool_read, &pool_given, &why), PQTX_MISUSE);
}
END_TEST

START_TEST(options_begin_as_all_default)
{
    struct longer given;
    memset(&given, 0xee, sizeof given);
    ck_assert_int_eq(pqtx_options_init(&given.known, sizeof given), PQTX_OK);
    ck_assert_uint_eq(given.known.size, sizeof given);
    ck_assert(is_filled((char *)&given + sizeof(size_t), sizeof given - sizeof(size_t), 0));

    memset(&given, 0xee, sizeof given);
    ck_assert_int_eq(pqtx_options_init(&given.known, sizeof given.known), PQTX_OK);
    ck_assert(is_filled(given.unknown, sizeof given.unknown, 0xee));

    ck_assert_int_eq(pqtx_options_init(NULL, sizeof given.known), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_options_init(&given.known, 0), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_options_init(&given.known, sizeof(size_t) - 1), PQTX_MISUSE);
}
END_TEST

START_TEST(a_transaction_without_a_connection_is_refused)
{
    pqtx_tx *both[] = {pqtx_new(NULL, NULL), pqtx_new_on(NULL, NULL)};
    for (int i = 0; i < 2; i++) {
        pqtx_error error = PQTX_ERROR;
        ck_assert_int_eq(pqtx_attempt(both[i]), 0);
        ck_assert_int_eq(pqtx_result(both[i]), PQTX_MISUSE);
        ck_assert_int_eq(pqtx_get_error(both[i], &error), PQTX_OK);
        ck_assert_int_eq(error.status, PQTX_MISUSE);
        ck_assert_int_ne(error.message[0], '\0');
        pqtx_free(both[i]);
    }
}
END_TEST

/* ---- The pool's */

static const pqtx_pool_options pool_wrong[] = {
    {.size = 0},
    {.size = sizeof(size_t) - 1},
    {POOL_SIZED, .max_count = -1},
    {POOL_SIZED, .max_count = INT32_MIN},
    {POOL_SIZED, .max_count = INT32_MAX},
    {POOL_SIZED, .min_count = -1},
    {POOL_SIZED, .min_count = 9}, /* more than the default of max_count */
    {POOL_SIZED, .min_count = 3, .max_count = 2},
    {POOL_SIZED, .flags = 0x10},
    {POOL_SIZED, .flags = PQTX_POOL_PREPARE_NEVER | PQTX_POOL_PREPARE_ALWAYS},
    {POOL_SIZED, .flags = 0x80000000},
    {POOL_SIZED, .reserved = 1},
    {POOL_SIZED, .connect_timeout_ms = -1},
    {POOL_SIZED, .connect_timeout_ms = MS_TOO_MUCH},
    {POOL_SIZED, .acquire_timeout_ms = -1},
    {POOL_SIZED, .acquire_timeout_ms = MS_TOO_MUCH},
    {POOL_SIZED, .idle_limit_ms = -1},
    {POOL_SIZED, .idle_limit_ms = MS_TOO_MUCH},
    {POOL_SIZED, .age_limit_ms = -1},
    {POOL_SIZED, .age_limit_ms = MS_TOO_MUCH},
    {POOL_SIZED, .check_after_ms = -1},
    {POOL_SIZED, .check_after_ms = MS_TOO_MUCH},
    {POOL_SIZED, .clock = &sizeless_clock},
    {POOL_SIZED, .clock = &timeless_clock},
    {POOL_SIZED, .retry_percent = -2},
    {POOL_SIZED, .retry_percent = INT32_MIN},
    {POOL_SIZED, .retry_burst = -1},
    {POOL_SIZED, .conninfo = "sesame"},
    {POOL_SIZED, .conninfo = "password='sesame"},
    {POOL_SIZED, .conninfo = "sesame=1"},
};

static const pqtx_pool_options pool_right[] = {
    {POOL_SIZED},
    {POOL_SIZED, .conninfo = ""},
    {POOL_SIZED, .conninfo = "host=/nowhere password=sesame"},
    {POOL_SIZED, .conninfo = "postgresql://nobody:sesame@localhost/nothing"},
    {POOL_SIZED, .max_count = 1, .min_count = 1},
    {POOL_SIZED, .min_count = 8},
    {POOL_SIZED, .max_count = 100, .min_count = 100},
    {POOL_SIZED, .flags = PQTX_POOL_RAW_ERRORS},
    {POOL_SIZED, .flags = PQTX_POOL_PREPARE_NEVER},
    {POOL_SIZED, .flags = PQTX_POOL_PREPARE_ALWAYS},
    {POOL_SIZED, .connect_timeout_ms = INT32_MAX, .acquire_timeout_ms = INT32_MAX},
    {POOL_SIZED, .idle_limit_ms = 1, .age_limit_ms = 1, .check_after_ms = 1},
    {POOL_SIZED, .retry_percent = -1},
    {POOL_SIZED, .retry_percent = 1, .retry_burst = INT32_MAX},
    {POOL_SIZED, .clock = &whole_clock},
};

static void assert_pool_defaults(const pqtx_pool_options *read)
{
    ck_assert_int_eq(read->max_count, 8);
    ck_assert_int_eq(read->min_count, 0);
    ck_assert_uint_eq(read->flags, 0);
    ck_assert_int_eq(read->connect_timeout_ms, 10000);
    ck_assert_int_eq(read->acquire_timeout_ms, 0);
    ck_assert_int_eq(read->idle_limit_ms, 600000);
    ck_assert_int_eq(read->age_limit_ms, 3600000);
    ck_assert_int_eq(read->check_after_ms, 100);
    ck_assert_int_eq(read->retry_percent, 300);
    ck_assert_int_eq(read->retry_burst, 1000);
    ck_assert_ptr_eq(read->clock, pqtx__clock(NULL));
}

START_TEST(a_wrong_pool_option_is_refused)
{
    char guard;
    pqtx_pool *pool = (pqtx_pool *)(void *)&guard;
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_pool_open(&pool_wrong[_i], &pool, &error), PQTX_MISUSE);
    ck_assert_ptr_null(pool);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(error.phase, PQTX_PHASE_NONE);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_LIBRARY);
    ck_assert_int_ne(error.message[0], '\0');
    ck_assert_msg(!strstr(error.message, "sesame"), "%s", error.message);
    ck_assert_int_eq(pqtx_pool_open(&pool_wrong[_i], &pool, NULL), PQTX_MISUSE);
}
END_TEST

START_TEST(a_right_pool_option_is_taken)
{
    pqtx_pool_options options = pool_right[_i];
    pqtx_pool *pool;
    pqtx_error error = PQTX_ERROR;
    options.flags |= PQTX_POOL_LAZY;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    ck_assert_ptr_nonnull(pool);
    ck_assert_int_eq(error.status, PQTX_OK);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(what_a_pool_is_not_told_has_its_default)
{
    pqtx_pool_options none = PQTX_POOL_OPTIONS, read;
    const char *why;
    ck_assert_int_eq(pqtx__pool_options_read(&read, &none, &why), PQTX_OK);
    assert_pool_defaults(&read);
    ck_assert_int_eq(pqtx__pool_options_read(&read, NULL, &why), PQTX_OK);
    assert_pool_defaults(&read);
    for (int i = 0; i < COUNT(pool_wrong); i++)
        if (pqtx__pool_options_read(&read, &pool_wrong[i], &why) != PQTX_OK)
            assert_pool_defaults(&read);
}
END_TEST

START_TEST(what_a_pool_is_told_is_kept)
{
    const pqtx_pool_options given = {
        POOL_SIZED,
        .conninfo = "host=/nowhere",
        .max_count = 2,
        .min_count = 1,
        .flags = PQTX_POOL_LAZY | PQTX_POOL_RAW_ERRORS,
        .connect_timeout_ms = 3,
        .acquire_timeout_ms = 4,
        .idle_limit_ms = 5,
        .age_limit_ms = 6,
        .check_after_ms = 7,
        .clock = &whole_clock,
    };
    pqtx_pool_options read;
    const char *why;
    ck_assert_int_eq(pqtx__pool_options_read(&read, &given, &why), PQTX_OK);
    ck_assert_str_eq(read.conninfo, "host=/nowhere");
    ck_assert_int_eq(read.max_count, 2);
    ck_assert_int_eq(read.min_count, 1);
    ck_assert_uint_eq(read.flags, PQTX_POOL_LAZY | PQTX_POOL_RAW_ERRORS);
    ck_assert_int_eq(read.connect_timeout_ms, 3);
    ck_assert_int_eq(read.acquire_timeout_ms, 4);
    ck_assert_int_eq(read.idle_limit_ms, 5);
    ck_assert_int_eq(read.age_limit_ms, 6);
    ck_assert_int_eq(read.check_after_ms, 7);
    ck_assert_ptr_eq(read.clock, &whole_clock);
}
END_TEST

START_TEST(pool_options_of_other_versions_are_read_with_care)
{
    struct {
        pqtx_pool_options known;
        unsigned char unknown[24];
    } longer = {.known = {.size = sizeof longer, .max_count = 3, .flags = PQTX_POOL_LAZY}};
    pqtx_pool *pool;
    ck_assert_int_eq(pqtx_pool_open(&longer.known, &pool, NULL), PQTX_OK);
    pqtx_pool_close(pool);
    longer.unknown[23] = 1;
    ck_assert_int_eq(pqtx_pool_open(&longer.known, &pool, NULL), PQTX_MISUSE);

    pqtx_pool_options shorter = {.max_count = 3, .flags = PQTX_POOL_LAZY}, read;
    const char *why;
    shorter.size = offsetof(pqtx_pool_options, reserved);
    memset((char *)&shorter + shorter.size, 0xee, sizeof shorter - shorter.size);
    ck_assert_int_eq(pqtx__pool_options_read(&read, &shorter, &why), PQTX_OK);
    ck_assert_int_eq(read.max_count, 3);
    ck_assert_int_eq(read.idle_limit_ms, 600000);
    ck_assert_int_eq(pqtx_pool_open(&shorter, &pool, NULL), PQTX_OK);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(pool_options_begin_as_all_default)
{
    pqtx_pool_options given;
    memset(&given, 0xee, sizeof given);
    ck_assert_int_eq(pqtx_pool_options_init(&given, sizeof given), PQTX_OK);
    ck_assert_uint_eq(given.size, sizeof given);
    ck_assert(is_filled((char *)&given + sizeof(size_t), sizeof given - sizeof(size_t), 0));
    ck_assert_int_eq(pqtx_pool_options_init(NULL, sizeof given), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_pool_options_init(&given, 0), PQTX_MISUSE);
}
END_TEST

START_TEST(a_pool_needs_somewhere_to_go)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error sizeless = {.size = 0};
    pqtx_pool *pool;
    options.flags = PQTX_POOL_LAZY;
    ck_assert_int_eq(pqtx_pool_open(&options, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, &sizeless), PQTX_MISUSE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("transaction");
    tcase_add_loop_test(tcase, a_wrong_option_is_refused, 0, COUNT(wrong));
    tcase_add_loop_test(tcase, a_right_option_is_taken, 0, COUNT(right));
    tcase_add_test(tcase, what_is_left_out_has_its_default);
    tcase_add_test(tcase, what_is_given_is_kept);
    tcase_add_test(tcase, options_of_a_newer_version_may_leave_out_what_is_new);
    tcase_add_test(tcase, options_of_a_newer_version_may_not_use_what_is_new);
    tcase_add_test(tcase, options_of_an_older_version_are_completed);
    tcase_add_test(tcase, a_size_beyond_belief_is_refused_unread);
    tcase_add_test(tcase, options_begin_as_all_default);
    tcase_add_test(tcase, a_transaction_without_a_connection_is_refused);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("pool");
    tcase_add_loop_test(tcase, a_wrong_pool_option_is_refused, 0, COUNT(pool_wrong));
    tcase_add_loop_test(tcase, a_right_pool_option_is_taken, 0, COUNT(pool_right));
    tcase_add_test(tcase, what_a_pool_is_not_told_has_its_default);
    tcase_add_test(tcase, what_a_pool_is_told_is_kept);
    tcase_add_test(tcase, pool_options_of_other_versions_are_read_with_care);
    tcase_add_test(tcase, pool_options_begin_as_all_default);
    tcase_add_test(tcase, a_pool_needs_somewhere_to_go);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
