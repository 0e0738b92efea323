/* check_clock.c: the seam between the library and time. */
#define _DEFAULT_SOURCE
#include "clock.h"
#include "support.h"
#include "support_random.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* A clock that stands still but for what wait() is told to move it by. */
struct fake {
    int64_t now_us;
    int64_t step_us;    /* how far one wait gets, at most */
    int vain;           /* so many waits come back before time has moved at all */
    int answer;         /* what wait() returns */
    int waits;          /* asked for */
    int64_t timeout_us; /* of the last one */
};

static int64_t fake_now_us(void *arg)
{
    return ((struct fake *)arg)->now_us;
}

static int fake_wait(void *arg, int fd, int events, int64_t timeout_us)
{
    struct fake *fake = arg;
    ck_assert_int_eq(fd, -1);
    ck_assert_int_eq(events, 0);
    fake->waits++;
    fake->timeout_us = timeout_us;
    if (fake->waits > fake->vain)
        fake->now_us += timeout_us < fake->step_us ? timeout_us : fake->step_us;
    return fake->answer;
}

static uint64_t fake_random(void *arg)
{
    (void)arg;
    return 4;
}

static pqtx_clock clock_of(struct fake *fake)
{
    return (pqtx_clock){.size = sizeof(pqtx_clock),
                        .arg = fake,
                        .now_us = fake_now_us,
                        .wait = fake_wait,
                        .random = fake_random};
}

START_TEST(a_complete_clock_is_used_as_it_is)
{
    struct fake fake = {.now_us = 42};
    pqtx_clock clock = clock_of(&fake);
    ck_assert_ptr_eq(pqtx__clock(&clock), &clock);
    ck_assert_int_eq(pqtx__now(&clock), 42);
    clock.size += 8;
    ck_assert_ptr_eq(pqtx__clock(&clock), &clock);
}
END_TEST

START_TEST(a_clock_that_lacks_something_is_refused)
{
    struct fake fake = {0};
    pqtx_clock sizeless = clock_of(&fake), short_one = sizeless, timeless = sizeless,
               restless = sizeless, chanceless = sizeless;
    sizeless.size = 0;
    short_one.size = sizeof short_one - 1;
    timeless.now_us = NULL;
    restless.wait = NULL;
    chanceless.random = NULL;
    ck_assert_ptr_null(pqtx__clock(&sizeless));
    ck_assert_ptr_null(pqtx__clock(&short_one));
    ck_assert_ptr_null(pqtx__clock(&timeless));
    ck_assert_ptr_null(pqtx__clock(&restless));
    ck_assert_ptr_null(pqtx__clock(&chanceless));
}
END_TEST

START_TEST(the_time_left_is_never_negative)
{
    struct fake fake = {.now_us = 1000};
    pqtx_clock clock = clock_of(&fake);
    ck_assert_int_eq(pqtx__left(&clock, 1001), 1);
    ck_assert_int_eq(pqtx__left(&clock, 1000), 0);
    ck_assert_int_eq(pqtx__left(&clock, 999), 0);
    ck_assert_int_eq(pqtx__left(&clock, INT64_MAX), INT64_MAX - 1000);
    ck_assert_int_eq(pqtx__left(&clock, INT64_MIN / 2), 0);
    start_random();
    for (int i = 0; i < 1000; i++) {
        fake.now_us = (int64_t)(random_bits() >> 2);
        int64_t until_us = (int64_t)(random_bits() >> 2);
        int64_t left_us = pqtx__left(&clock, until_us);
        ck_assert_int_eq(left_us, until_us > fake.now_us ? until_us - fake.now_us : 0);
    }
}
END_TEST

START_TEST(a_sleep_goes_on_after_waits_that_end_early)
{
    struct fake fake = {.now_us = 1000, .step_us = 30};
    pqtx_clock clock = clock_of(&fake);
    pqtx__sleep(&clock, 1100);
    ck_assert_int_eq(fake.now_us, 1100);
    ck_assert_int_eq(fake.waits, 4);
    ck_assert_int_eq(fake.timeout_us, 10);
}
END_TEST

START_TEST(a_sleep_goes_on_after_waits_that_were_interrupted)
{
    struct fake fake = {.step_us = INT64_MAX, .vain = 5};
    pqtx_clock clock = clock_of(&fake);
    pqtx__sleep(&clock, 100);
    ck_assert_int_eq(fake.now_us, 100);
    ck_assert_int_eq(fake.waits, 6);
}
END_TEST

START_TEST(a_sleep_into_the_past_does_not_wait)
{
    struct fake fake = {.now_us = 1000, .step_us = 1};
    pqtx_clock clock = clock_of(&fake);
    pqtx__sleep(&clock, 1000);
    pqtx__sleep(&clock, 10);
    pqtx__sleep(&clock, -10);
    ck_assert_int_eq(fake.waits, 0);
}
END_TEST

START_TEST(a_sleep_ends_where_waiting_is_impossible)
{
    struct fake fake = {.answer = -1};
    pqtx_clock clock = clock_of(&fake);
    pqtx__sleep(&clock, 100);
    ck_assert_int_eq(fake.waits, 1);
}
END_TEST

/* ---- The system's clock */

static const pqtx_clock *sys;
static int ours, theirs; /* the two ends of a connection */

static void open_ends(void)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ours = ends[0];
    theirs = ends[1];
    sys = pqtx__clock(NULL);
    ck_assert_ptr_nonnull(sys);
}

static void close_ends(void)
{
    close(ours);
    close(theirs);
}

static int wait_for(int fd, int events, int64_t timeout_us)
{
    return sys->wait(sys->arg, fd, events, timeout_us);
}

/* So that no more fits in. */
static void fill(int fd)
{
    char bytes[4096] = {0};
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
}

START_TEST(the_systems_time_does_not_go_back)
{
    int64_t before = pqtx__now(sys);
    for (int i = 0; i < 1000; i++) {
        int64_t now = pqtx__now(sys);
        ck_assert_int_ge(now, before);
        before = now;
    }
}
END_TEST

START_TEST(a_wait_ends_when_there_is_something_to_read)
{
    ck_assert_int_eq(write(theirs, "x", 1), 1);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, INT64_MAX), PQTX_WAIT_READ);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, 0), PQTX_WAIT_READ);
}
END_TEST

START_TEST(a_wait_ends_when_there_is_room_to_write)
{
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_WRITE, INT64_MAX), PQTX_WAIT_WRITE);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_WRITE, 0), PQTX_WAIT_WRITE);
}
END_TEST

START_TEST(a_wait_ends_when_the_other_side_has_gone)
{
    close(theirs);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, INT64_MAX), PQTX_WAIT_READ);
    theirs = dup(ours);
}
END_TEST

START_TEST(a_wait_ends_when_its_time_is_up)
{
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, 0), 0);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, 1), 0);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, 1500), 0);
    fill(ours);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_WRITE, 0), 0);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ | PQTX_WAIT_WRITE, 1500), 0);
}
END_TEST

START_TEST(a_wait_tells_which_of_two_events_is_ready)
{
    const int both = PQTX_WAIT_READ | PQTX_WAIT_WRITE;
    ck_assert_int_eq(wait_for(ours, both, INT64_MAX), PQTX_WAIT_WRITE);
    ck_assert_int_eq(write(theirs, "x", 1), 1);
    ck_assert_int_eq(wait_for(ours, both, INT64_MAX), both);
    fill(ours);
    ck_assert_int_eq(wait_for(ours, both, INT64_MAX), PQTX_WAIT_READ);
}
END_TEST

START_TEST(a_wait_on_what_is_not_open_does_not_last)
{
    int closed = dup(ours);
    close(closed);
    ck_assert_int_ne(wait_for(closed, PQTX_WAIT_READ, INT64_MAX), 0);
}
END_TEST

START_TEST(without_a_connection_a_wait_is_a_sleep)
{
    ck_assert_int_eq(wait_for(-1, 0, 0), 0);
    ck_assert_int_eq(wait_for(-1, 0, 1500), 0);
}
END_TEST

static volatile sig_atomic_t signals;

static void note_signal(int number)
{
    (void)number;
    signals++;
}

/* A signal every so often, until that is 0. */
static void signal_every(int us)
{
    struct sigaction action = {.sa_handler = note_signal};
    struct itimerval timer = {{0, us}, {0, us}};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

START_TEST(a_sleep_lasts_in_spite_of_signals)
{
    signal_every(1000);
    while (signals == 0) {
        int64_t until_us = pqtx__now(sys) + 5000;
        pqtx__sleep(sys, until_us);
        ck_assert_int_ge(pqtx__now(sys), until_us);
    }
    signal_every(0);
}
END_TEST

/* So many milliseconds that, cut to 32 bits, they are none. */
START_TEST(a_very_long_wait_ends_with_a_signal_and_not_before)
{
    signal_every(1000);
    ck_assert_int_eq(wait_for(ours, PQTX_WAIT_READ, INT64_C(1000) << 32), 0);
    ck_assert_int_gt(signals, 0);
    signal_every(0);
}
END_TEST

START_TEST(every_bit_of_chance_is_used)
{
    uint64_t ones = 0, zeros = 0;
    for (int i = 0; i < 128; i++) {
        uint64_t bits = sys->random(sys->arg);
        ones |= bits;
        zeros |= ~bits;
    }
    ck_assert_uint_eq(ones, UINT64_MAX);
    ck_assert_uint_eq(zeros, UINT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("any");
    tcase_add_test(tcase, a_complete_clock_is_used_as_it_is);
    tcase_add_test(tcase, a_clock_that_lacks_something_is_refused);
    tcase_add_test(tcase, the_time_left_is_never_negative);
    tcase_add_test(tcase, a_sleep_goes_on_after_waits_that_end_early);
    tcase_add_test(tcase, a_sleep_goes_on_after_waits_that_were_interrupted);
    tcase_add_test(tcase, a_sleep_into_the_past_does_not_wait);
    tcase_add_test(tcase, a_sleep_ends_where_waiting_is_impossible);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("system");
    tcase_add_checked_fixture(tcase, open_ends, close_ends);
    tcase_add_test(tcase, the_systems_time_does_not_go_back);
    tcase_add_test(tcase, a_wait_ends_when_there_is_something_to_read);
    tcase_add_test(tcase, a_wait_ends_when_there_is_room_to_write);
    tcase_add_test(tcase, a_wait_ends_when_the_other_side_has_gone);
    tcase_add_test(tcase, a_wait_ends_when_its_time_is_up);
    tcase_add_test(tcase, a_wait_tells_which_of_two_events_is_ready);
    tcase_add_test(tcase, a_wait_on_what_is_not_open_does_not_last);
    tcase_add_test(tcase, without_a_connection_a_wait_is_a_sleep);
    tcase_add_test(tcase, a_sleep_lasts_in_spite_of_signals);
    tcase_add_test(tcase, a_very_long_wait_ends_with_a_signal_and_not_before);
    tcase_add_test(tcase, every_bit_of_chance_is_used);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
