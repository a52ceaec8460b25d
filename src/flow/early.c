/* SPDX-License-Identifier: Apache-2.0 */
/* Looks of a step for what came before it. Looks of several lanes ride in one statement, like resolves. */
#include "flow/early.h"

#include "base/alloc.h"
#include "flow/lane_set.h"

struct early_look {
	struct store_probe probe;
	struct arena arena;
	struct wake *wake;
	struct id keys[];
};

static void early_found(struct task *done)
{
	struct early_look *look = container_of(done, struct early_look, probe.base.done);

	/* A look that fails is made up for by the keeper's own. */
	for (uint32_t i = 0; look->probe.base.outcome == STORE_OK && i < look->probe.found_count; i++) {
		const struct store_early *found = &look->probe.found[i];
		struct wake_early early = {look->probe.tenant, found->channel, found->order_key, found->keeper};

		wake_early(look->wake, &early);
	}
	arena_done(&look->arena);
	free(look);
}

void early_probe(struct lane *lane, const struct store_commit *commit)
{
	uint32_t count = commit->waits_added_count;
	struct early_look *look;
	char *tenant;

	if (!count)
		return;
	look = mem_zalloc(sizeof(*look) + count * sizeof(struct id) + commit->tenant.len);
	arena_init(&look->arena);
	look->wake = lane->set->wake;
	for (uint32_t i = 0; i < count; i++)
		look->keys[i] = commit->waits_added[i].key;
	tenant = (char *)&look->keys[count];
	memcpy(tenant, commit->tenant.ptr, commit->tenant.len);
	look->probe = (struct store_probe){
		.base = {.reply_to = lane->executor->loop, .done.run = early_found, .arena = &look->arena},
		.tenant = str_make(tenant, commit->tenant.len),
		.keys = look->keys,
		.key_count = count,
	};
	store_probe(lane->set->store, &look->probe);
}
