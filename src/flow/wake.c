/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups between lanes and the intakes that hold deliveries. Lanes commit far more often than anything is held, so the
 * usual case must cost nothing: one atomic load says that nobody waits for anything.
 *
 * A target is told by a small message on its own loop, never called from here: the intake looks up what it holds under the
 * key there. A message for a key that is no longer held finds nothing, which is harmless.
 */
#include "flow/wake.h"

#include <stdatomic.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/map.h"

struct wake_slot {
	struct wake_want {
		struct wake_target *target;
		uint32_t count;
	} *wants;
	uint32_t want_count;
};

struct wake {
	uv_mutex_t lock;
	struct map slots; /* id → struct wake_slot */
	atomic_uint interests;
};

struct wake_message {
	struct task task;
	struct wake_target *target;
	struct id key;
};

struct wake *wake_new(void)
{
	struct wake *wake = mem_zalloc(sizeof(*wake));

	uv_mutex_init(&wake->lock);
	map_init(&wake->slots);
	return wake;
}

static void wake_slot_free(struct wake_slot *slot)
{
	free(slot->wants);
	free(slot);
}

void wake_free(struct wake **wake)
{
	if (!*wake)
		return;
	for (struct map_entry *e = map_first(&(*wake)->slots); e; e = map_next(&(*wake)->slots, e))
		wake_slot_free(e->value);
	map_done(&(*wake)->slots);
	uv_mutex_destroy(&(*wake)->lock);
	free(*wake);
	*wake = NULL;
}

static struct wake_want *wake_want_find(struct wake_slot *slot, struct wake_target *target)
{
	for (uint32_t i = 0; i < slot->want_count; i++)
		if (slot->wants[i].target == target)
			return &slot->wants[i];
	return NULL;
}

void wake_interest(struct wake *wake, struct id key, struct wake_target *target)
{
	struct wake_slot *slot;
	struct wake_want *want;

	uv_mutex_lock(&wake->lock);
	slot = map_get(&wake->slots, id_str(&key));
	if (!slot) {
		slot = mem_zalloc(sizeof(*slot));
		map_put(&wake->slots, id_str(&key), slot);
	}
	want = wake_want_find(slot, target);
	if (!want) {
		slot->wants = mem_array(slot->wants, slot->want_count + 1, sizeof(*slot->wants));
		want = &slot->wants[slot->want_count++];
		*want = (struct wake_want){target, 0};
	}
	want->count++;
	atomic_fetch_add(&wake->interests, 1);
	uv_mutex_unlock(&wake->lock);
}

void wake_drop(struct wake *wake, struct id key, struct wake_target *target)
{
	struct wake_slot *slot;
	struct wake_want *want;

	uv_mutex_lock(&wake->lock);
	slot = map_get(&wake->slots, id_str(&key));
	want = slot ? wake_want_find(slot, target) : NULL;
	assert(want && want->count);
	atomic_fetch_sub(&wake->interests, 1);
	if (--want->count == 0)
		*want = slot->wants[--slot->want_count];
	if (slot->want_count == 0) {
		map_remove(&wake->slots, id_str(&key));
		wake_slot_free(slot);
	}
	uv_mutex_unlock(&wake->lock);
}

static void wake_deliver(struct task *task)
{
	struct wake_message *message = container_of(task, struct wake_message, task);

	message->target->woken(message->target, message->key);
	free(message);
}

static struct wake_message *wake_message_new(struct wake_target *target, struct id key)
{
	struct wake_message *message = mem_alloc(sizeof(*message));

	*message = (struct wake_message){{NULL, wake_deliver}, target, key};
	return message;
}

void wake_fire(struct wake *wake, struct id key)
{
	struct wake_message **messages = NULL;
	struct wake_slot *slot;
	uint32_t count = 0;

	if (atomic_load_explicit(&wake->interests, memory_order_acquire) == 0)
		return;
	uv_mutex_lock(&wake->lock);
	slot = map_get(&wake->slots, id_str(&key));
	if (slot) {
		messages = mem_array(NULL, slot->want_count, sizeof(struct wake_message *));
		for (; count < slot->want_count; count++)
			messages[count] = wake_message_new(slot->wants[count].target, key);
	}
	uv_mutex_unlock(&wake->lock);
	/* Posting takes the target loop's own lock, so it happens outside ours. */
	for (uint32_t i = 0; i < count; i++)
		loop_post(messages[i]->target->loop, &messages[i]->task);
	free(messages);
}
