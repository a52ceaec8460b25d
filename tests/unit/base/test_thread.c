/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The production loop and its threads, meant for the thread sanitizer too.
 */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/testing.h"

#define WAIT_MS 20000
#define POSTERS 4
#define POSTS 5000

/* What happens on a loop is checked on the loop and read after it was stopped. */
struct item {
	struct task task;
	struct order *order;
	int poster;
	int number;
};

struct order {
	int next[POSTERS];
	int wrong;
	struct test_latch latch;
};

struct poster {
	struct loop *loop;
	struct order *order;
	int id;
};

static void run_item(struct task *task)
{
	struct item *item = container_of(task, struct item, task);

	if (item->number != item->order->next[item->poster]++)
		item->order->wrong++;
	test_latch_raise(&item->order->latch);
	free(item);
}

static void *post_items(void *arg)
{
	struct poster *poster = arg;

	for (int i = 0; i < POSTS; i++) {
		struct item *item = mem_alloc(sizeof(*item));

		*item = (struct item){{NULL, run_item}, poster->order, poster->id, i};
		loop_post(poster->loop, &item->task);
	}
	return NULL;
}

START_TEST(posts_of_one_poster_keep_their_order)
{
	struct order order = {.latch = TEST_LATCH_INIT};
	struct poster posters[POSTERS];
	pthread_t threads[POSTERS];
	struct loop *loop = loop_start(runtime_threads(), "order");

	for (int i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){loop, &order, i};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, post_items, &posters[i]), 0);
	}
	for (int i = 0; i < POSTERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert(test_latch_wait(&order.latch, POSTERS * POSTS, WAIT_MS));
	loop_stop(&loop);
	ck_assert_ptr_null(loop);
	ck_assert_int_eq(order.wrong, 0);
	for (int i = 0; i < POSTERS; i++)
		ck_assert_int_eq(order.next[i], POSTS);
}
END_TEST

START_TEST(stop_runs_what_was_posted)
{
	struct order order = {.latch = TEST_LATCH_INIT};
	struct loop *loop = loop_start(runtime_threads(), "stop");
	struct poster poster = {loop, &order, 0};

	post_items(&poster);
	loop_stop(&loop);
	ck_assert_int_eq(order.next[0], POSTS);
	loop_stop(&loop);
}
END_TEST

/* Two loops that throw one object to and fro. */
struct ball {
	struct task task;
	struct loop *loops[2];
	int throws;
	struct test_latch *latch;
};

static void run_ball(struct task *task)
{
	struct ball *ball = container_of(task, struct ball, task);
	struct test_latch *latch = ball->latch;

	if (++ball->throws < 2000)
		loop_post(ball->loops[ball->throws % 2], &ball->task);
	else
		test_latch_raise(latch);
}

START_TEST(posting_gives_ownership)
{
	struct test_latch latch = TEST_LATCH_INIT;
	struct ball ball = {.task.run = run_ball, .latch = &latch};

	ball.loops[0] = loop_start(runtime_threads(), "left");
	ball.loops[1] = loop_start(runtime_threads(), "right");
	loop_post(ball.loops[0], &ball.task);
	ck_assert(test_latch_wait(&latch, 1, WAIT_MS));
	for (int i = 0; i < 2; i++)
		loop_stop(&ball.loops[i]);
	ck_assert_int_eq(ball.throws, 2000);
}
END_TEST

/* A task that posts itself until a timer and a descriptor had their turn: if they starved, it would never end. */
struct greedy {
	struct task task;
	struct loop *loop;
	struct loop_timer timer;
	uv_poll_t poll;
	int pipe[2];
	bool timer_fired, readable;
	struct test_latch latch;
};

static void run_greedy(struct task *task)
{
	struct greedy *greedy = container_of(task, struct greedy, task);

	if (greedy->timer_fired && greedy->readable)
		test_latch_raise(&greedy->latch);
	else
		loop_post(greedy->loop, task);
}

static void greedy_timer(struct loop_timer *timer)
{
	container_of(timer, struct greedy, timer)->timer_fired = true;
}

static void greedy_readable(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
	struct greedy *greedy = container_of(poll, struct greedy, poll);

	greedy->readable = true;
	uv_poll_stop(poll);
	uv_close((uv_handle_t *)poll, NULL);
}

static void greedy_start(void *arg)
{
	struct greedy *greedy = arg;

	loop_timer_init(&greedy->timer, greedy->loop, greedy_timer);
	loop_timer_start(&greedy->timer, 2000);
	ck_assert_int_eq(uv_poll_init(loop_uv(greedy->loop), &greedy->poll, greedy->pipe[0]), 0);
	ck_assert_int_eq(uv_poll_start(&greedy->poll, UV_READABLE, greedy_readable), 0);
	loop_post(greedy->loop, &greedy->task);
}

START_TEST(endless_posts_starve_nobody)
{
	struct greedy greedy = {.task.run = run_greedy, .latch = TEST_LATCH_INIT};

	ck_assert_int_eq(pipe(greedy.pipe), 0);
	ck_assert_int_eq(write(greedy.pipe[1], "x", 1), 1);
	greedy.loop = loop_start(runtime_threads(), "greedy");
	loop_call(greedy.loop, greedy_start, &greedy);
	ck_assert(test_latch_wait(&greedy.latch, 1, WAIT_MS));
	loop_stop(&greedy.loop);
	close(greedy.pipe[0]);
	close(greedy.pipe[1]);
}
END_TEST

struct clockwork;

struct wheel {
	struct loop_timer timer;
	struct clockwork *work;
	int64_t delay_us;
	int64_t fired_us;
	int place; /* in the order of firing, from 1 */
};

struct clockwork {
	struct loop *loop;
	struct wheel wheels[3];
	int64_t started_us;
	int count;
	struct test_latch latch;
};

static void wheel_fire(struct loop_timer *timer)
{
	struct wheel *wheel = container_of(timer, struct wheel, timer);

	wheel->fired_us = loop_now_us(timer->loop);
	wheel->place = ++wheel->work->count;
	test_latch_raise(&wheel->work->latch);
}

static void clockwork_start(void *arg)
{
	struct clockwork *work = arg;

	work->started_us = loop_now_us(work->loop);
	for (size_t i = 0; i < ARRAY_LEN(work->wheels); i++) {
		work->wheels[i].work = work;
		loop_timer_init(&work->wheels[i].timer, work->loop, wheel_fire);
		loop_timer_start(&work->wheels[i].timer, work->wheels[i].delay_us);
	}
}

START_TEST(timers_fire_in_order_and_never_early)
{
	struct clockwork work = {.latch = TEST_LATCH_INIT,
				 .wheels = {{.delay_us = 30500}, {.delay_us = 0}, {.delay_us = 10001}}};

	work.loop = loop_start(runtime_threads(), "clockwork");
	loop_call(work.loop, clockwork_start, &work);
	ck_assert(test_latch_wait(&work.latch, 3, WAIT_MS));
	loop_stop(&work.loop);
	ck_assert_int_eq(work.wheels[1].place, 1);
	ck_assert_int_eq(work.wheels[2].place, 2);
	ck_assert_int_eq(work.wheels[0].place, 3);
	for (size_t i = 0; i < ARRAY_LEN(work.wheels); i++)
		ck_assert_int_ge(work.wheels[i].fired_us, work.started_us + work.wheels[i].delay_us);
}
END_TEST

START_TEST(stop_leaves_waiting_timers_stopped)
{
	struct clockwork work = {.latch = TEST_LATCH_INIT,
				 .wheels = {{.delay_us = INT64_C(1) << 60}, {.delay_us = 3600 * US_PER_S},
					    {.delay_us = INT64_MAX}}};

	work.loop = loop_start(runtime_threads(), "waiting");
	loop_call(work.loop, clockwork_start, &work);
	loop_stop(&work.loop);
	for (size_t i = 0; i < ARRAY_LEN(work.wheels); i++) {
		ck_assert(!loop_timer_is_started(&work.wheels[i].timer));
		loop_timer_stop(&work.wheels[i].timer);
	}
	ck_assert_int_eq(work.count, 0);
}
END_TEST

struct view {
	struct loop *loop;
	char name[16];
	sigset_t mask;
	pthread_t thread;
	uint64_t random[100];
	int64_t wall_us;
	bool has_uv;
};

static void look(void *arg)
{
	struct view *view = arg;

	pthread_getname_np(pthread_self(), view->name, sizeof(view->name));
	pthread_sigmask(SIG_BLOCK, NULL, &view->mask);
	view->thread = pthread_self();
	for (size_t i = 0; i < ARRAY_LEN(view->random); i++)
		view->random[i] = loop_random(view->loop);
	view->wall_us = loop_wall_us(view->loop);
	view->has_uv = loop_uv(view->loop) != NULL;
}

START_TEST(thread_has_name_and_blocks_signals)
{
	struct view view = {.loop = loop_start(runtime_threads(), "executor-and-more")};
	sigset_t mine;

	loop_call(view.loop, look, &view);
	loop_stop(&view.loop);
	ck_assert_str_eq(view.name, "executor-and-mo");
	ck_assert(sigismember(&view.mask, SIGTERM));
	ck_assert(sigismember(&view.mask, SIGPIPE));
	ck_assert(sigismember(&view.mask, SIGUSR1));
	ck_assert(!sigismember(&view.mask, SIGSEGV));
	ck_assert(view.has_uv);
	ck_assert_int_gt(view.wall_us, 0);
	for (size_t i = 0; i < ARRAY_LEN(view.random); i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_uint_ne(view.random[i], view.random[k]);
	pthread_sigmask(SIG_BLOCK, NULL, &mine);
	ck_assert(!sigismember(&mine, SIGTERM));
}
END_TEST

START_TEST(loops_come_and_go)
{
	for (int i = 0; i < 50; i++) {
		struct view view = {.loop = loop_start(runtime_threads(), "short")};

		if (i % 2)
			loop_call(view.loop, look, &view);
		loop_stop(&view.loop);
	}
}
END_TEST

static Suite *thread_suite(void)
{
	Suite *suite = suite_create("base/thread");
	TCase *tcase = tcase_create("thread");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, posts_of_one_poster_keep_their_order, stop_runs_what_was_posted, posting_gives_ownership,
		     endless_posts_starve_nobody, timers_fire_in_order_and_never_early,
		     stop_leaves_waiting_timers_stopped, thread_has_name_and_blocks_signals, loops_come_and_go);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(thread_suite)
