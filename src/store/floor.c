/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floors: from which version on an order group of the outbox, (instance, channel), can have rows.
 *
 * A new row may go out at once only if nothing waits before it in its group, so every insert looks at the group from its
 * beginning. Rows that were sent and deleted stay in the index until it is vacuumed: an instance that has sent 10 000 messages
 * in a short time would look at 10 000 ends of rows for each further one. But a step's rows have its version, versions only grow, and the
 * fence lets one step at a time commit: below the oldest row that a step has found (or below its own version, if it found none) there
 * never will be one again. So each insert answers that version, and the next one of the group begins there.
 *
 * A floor is a hint: none, or a lower one, costs time and nothing else. It is kept for as many groups as there are slots, each for the
 * group that came last, for only what sends often gains. A database that has gone back in time, as a failover without the last commits
 * does, would make floors wrong: so they are forgotten with every connection that breaks, and by a version below its floor.
 */
#include "base/alloc.h"
#include "store/internal.h"

#define FLOOR_SLOTS 4096 /* a power of two */

struct floor_slot {
	struct id instance;
	uint64_t channel; /* digest of its name */
	int64_t version;  /* 0 = an empty slot */
};

static uint64_t floor_channel(struct str channel)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < channel.len; i++)
		hash = (hash ^ (unsigned char)channel.ptr[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static struct floor_slot *floor_slot(const struct floors *floors, struct id instance, uint64_t channel)
{
	uint64_t tail;

	memcpy(&tail, instance.bytes + 8, 8);
	tail = (tail ^ channel) * UINT64_C(0x9e3779b97f4a7c15);
	return &floors->slots[tail >> 32 & (FLOOR_SLOTS - 1)];
}

int64_t floor_get(struct floors *floors, const struct outbox_row *row)
{
	uint64_t channel = floor_channel(row->channel);
	struct floor_slot *slot;

	if (!floors->slots)
		return 0;
	slot = floor_slot(floors, row->instance, channel);
	if (slot->channel != channel || !id_equal(slot->instance, row->instance))
		return 0;
	if (slot->version > row->version)
		slot->version = 0;
	return slot->version;
}

void floor_set(struct floors *floors, struct id instance, struct str channel, int64_t version)
{
	uint64_t hash = floor_channel(channel);

	if (!floors->slots)
		floors->slots = mem_zalloc(FLOOR_SLOTS * sizeof(*floors->slots));
	*floor_slot(floors, instance, hash) = (struct floor_slot){instance, hash, version};
}

void floors_forget(struct floors *floors)
{
	free(floors->slots);
	floors->slots = NULL;
}
