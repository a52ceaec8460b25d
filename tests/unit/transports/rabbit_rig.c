/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/transports/rabbit_rig.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "tests/support/testing.h"

#define EVENTS 4096

struct rabbit_handle {
	struct rabbit_fake *fake;
	struct loop *loop;
	void (*ready)(void *user);
	void *user;
	struct rabbit_event events[EVENTS];
	size_t first, last;
	struct task wake;
	bool wake_posted, closed;
};

void rabbit_fake_init(struct rabbit_fake *fake)
{
	*fake = (struct rabbit_fake){.answers = true};
}

void rabbit_fake_done(struct rabbit_fake *fake)
{
	ck_assert(!fake->handle);
	buf_done(&fake->calls);
}

const char *rabbit_fake_calls(struct rabbit_fake *fake)
{
	/* The text stays valid behind the reset. */
	buf_add_byte(&fake->calls, 0);
	fake->calls.len = 0;
	return fake->calls.data;
}

static void push(struct rabbit_handle *handle, const struct rabbit_event *event)
{
	ck_assert(handle->last < EVENTS);
	handle->events[handle->last++] = *event;
}

void rabbit_fake_event(struct rabbit_fake *fake, const struct rabbit_event *event, const char *text)
{
	struct rabbit_event copy = *event;

	ck_assert(fake->handle);
	snprintf(copy.text, sizeof(copy.text), "%s", text ? text : "");
	push(fake->handle, &copy);
	fake->handle->ready(fake->handle->user);
}

static void woken(struct task *task)
{
	struct rabbit_handle *handle = container_of(task, struct rabbit_handle, wake);

	handle->wake_posted = false;
	if (handle->closed)
		free(handle);
	else
		handle->ready(handle->user);
}

/* From inside a call of the table: ready comes later. */
static void answer(struct rabbit_handle *handle, enum rabbit_event_kind kind, uint16_t channel)
{
	if (!handle->fake->answers)
		return;
	push(handle, &(struct rabbit_event){.kind = kind, .channel = channel});
	if (handle->wake_posted)
		return;
	handle->wake_posted = true;
	handle->wake.run = woken;
	loop_post(handle->loop, &handle->wake);
}

static enum result fake_open(void *broker, struct loop *loop, const struct rabbit_settings *settings UNUSED,
			     void (*ready)(void *user), void *user, struct rabbit_handle **out, struct error *err)
{
	struct rabbit_fake *fake = broker;

	if (fake->refuses)
		return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "nobody is there");
	ck_assert(!fake->handle);
	*out = mem_zalloc(sizeof(**out));
	**out = (struct rabbit_handle){.fake = fake, .loop = loop, .ready = ready, .user = user};
	fake->handle = *out;
	fake->opened++;
	buf_add_text(&fake->calls, "connect; ");
	return RESULT_OK;
}

static void fake_poll(struct rabbit_handle *handle, struct rabbit_event *event)
{
	*event = (struct rabbit_event){.kind = RABBIT_EVENT_NONE};
	if (handle->first < handle->last)
		*event = handle->events[handle->first++];
	else
		handle->first = handle->last = 0;
}

static void fake_channel_open(struct rabbit_handle *handle, uint16_t channel)
{
	buf_printf(&handle->fake->calls, "open %u; ", channel);
	answer(handle, RABBIT_EVENT_OPENED, channel);
}

static void fake_channel_close(struct rabbit_handle *handle, uint16_t channel)
{
	buf_printf(&handle->fake->calls, "close %u; ", channel);
	answer(handle, RABBIT_EVENT_CLOSED, channel);
}

static void fake_qos(struct rabbit_handle *handle, uint16_t channel, uint16_t count)
{
	buf_printf(&handle->fake->calls, "qos %u %u; ", channel, count);
	answer(handle, RABBIT_EVENT_QOS, channel);
}

static void fake_consume(struct rabbit_handle *handle, uint16_t channel, const char *queue)
{
	buf_printf(&handle->fake->calls, "consume %u %s; ", channel, queue);
	answer(handle, RABBIT_EVENT_CONSUMING, channel);
}

static void fake_cancel(struct rabbit_handle *handle, uint16_t channel)
{
	buf_printf(&handle->fake->calls, "cancel %u; ", channel);
	answer(handle, RABBIT_EVENT_STOPPED, channel);
}

static void fake_ack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag, bool multiple)
{
	buf_printf(&handle->fake->calls, "ack %u %s%" PRIu64 "; ", channel, multiple ? "<=" : "", tag);
}

static void fake_nack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag)
{
	buf_printf(&handle->fake->calls, "nack %u %" PRIu64 "; ", channel, tag);
}

static void fake_confirm(struct rabbit_handle *handle, uint16_t channel)
{
	buf_printf(&handle->fake->calls, "confirm %u; ", channel);
	answer(handle, RABBIT_EVENT_CONFIRMING, channel);
}

static void fake_publish(struct rabbit_handle *handle, uint16_t channel, struct str exchange, struct str key,
			 const struct rabbit_properties *properties, struct str body)
{
	ck_assert_uint_eq(handle->first, handle->last); /* read before it was written to */
	buf_printf(&handle->fake->calls, "publish %u '%.*s' '%.*s' %.*s %zu; ", channel, STR_ARG(exchange), STR_ARG(key),
		   STR_ARG(properties->message_id), body.len);
}

static void fake_close(struct rabbit_handle **handle_ptr, bool is_orderly)
{
	struct rabbit_handle *handle = *handle_ptr;

	*handle_ptr = NULL;
	buf_add_text(&handle->fake->calls, is_orderly ? "disconnect; " : "drop; ");
	handle->fake->handle = NULL;
	handle->closed = true;
	if (!handle->wake_posted)
		free(handle);
}

static void fake_nack_all(struct rabbit_handle *handle, uint16_t channel)
{
	buf_printf(&handle->fake->calls, "nack %u all; ", channel);
}

static const char *fake_product(struct rabbit_handle *handle)
{
	return handle->fake->product ? handle->fake->product : "Fake 1";
}

const struct rabbit_client rabbit_fake_client = {
	.open = fake_open,
	.poll = fake_poll,
	.channel_open = fake_channel_open,
	.channel_close = fake_channel_close,
	.qos = fake_qos,
	.consume = fake_consume,
	.cancel = fake_cancel,
	.ack = fake_ack,
	.nack = fake_nack,
	.nack_all = fake_nack_all,
	.confirm = fake_confirm,
	.publish = fake_publish,
	.close = fake_close,
	.product = fake_product,
};
