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
	struct list targets; /* those that have joined */
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
	list_init(&wake->targets);
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

/* --- early messages --- */

struct wake_early_message {
	struct task task;
	struct wake_target *target;
	struct id order_key;
	size_t keeper_len;
	bool has_keeper;
	char keeper[];
};

static void wake_early_deliver(struct task *task)
{
	struct wake_early_message *message = container_of(task, struct wake_early_message, task);
	struct str keeper = message->has_keeper ? str_make(message->keeper, message->keeper_len) : STR_NONE;

	message->target->early(message->target, message->order_key, keeper);
	free(message);
}

void wake_join(struct wake *wake, struct wake_target *target)
{
	uv_mutex_lock(&wake->lock);
	list_push(&wake->targets, &target->link);
	uv_mutex_unlock(&wake->lock);
}

void wake_leave(struct wake *wake, struct wake_target *target)
{
	uv_mutex_lock(&wake->lock);
	list_remove(&target->link);
	uv_mutex_unlock(&wake->lock);
}

/* One place is one intake, so there is one target at most; it is posted to under the lock, so that none is told after it has left. */
void wake_early(struct wake *wake, const struct wake_early *early)
{
	struct wake_early_message *message;

	uv_mutex_lock(&wake->lock);
	list_for_each(&wake->targets, pos, tmp) {
		struct wake_target *target = list_entry(pos, struct wake_target, link);

		if (!str_equal(target->tenant, early->tenant) || !str_equal(target->channel, early->channel))
			continue;
		message = mem_alloc(sizeof(*message) + early->keeper.len);
		*message = (struct wake_early_message){{NULL, wake_early_deliver}, target, early->order_key,
						       early->keeper.len, early->keeper.ptr != NULL};
		if (early->keeper.len)
			memcpy(message->keeper, early->keeper.ptr, early->keeper.len);
		loop_post(target->loop, &message->task);
	}
	uv_mutex_unlock(&wake->lock);
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
