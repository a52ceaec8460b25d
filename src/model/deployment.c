/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deployments: counted, immutable, all in one arena.
 */
#include "model/deployment.h"

#include <stdlib.h>

#include "base/alloc.h"

struct deployment *deployment_new(void)
{
	struct deployment *deployment = mem_zalloc(sizeof(*deployment));

	atomic_init(&deployment->refs, 1);
	arena_init(&deployment->arena);
	return deployment;
}

struct deployment *deployment_ref(struct deployment *deployment)
{
	atomic_fetch_add_explicit(&deployment->refs, 1, memory_order_relaxed);
	return deployment;
}

void deployment_unref(struct deployment **deployment)
{
	struct deployment *gone = *deployment;

	*deployment = NULL;
	if (!gone || atomic_fetch_sub_explicit(&gone->refs, 1, memory_order_acq_rel) != 1)
		return;
	arena_done(&gone->arena);
	free(gone);
}

const struct channel *deployment_channel(const struct deployment *deployment, struct str name)
{
	for (uint32_t i = 0; i < deployment->channel_count; i++)
		if (str_equal(deployment->channels[i]->name, name))
			return deployment->channels[i];
	return NULL;
}

const struct process *deployment_process(const struct deployment *deployment, struct str id)
{
	for (uint32_t i = 0; i < deployment->process_count; i++)
		if (str_equal(deployment->processes[i]->id, id))
			return deployment->processes[i];
	return NULL;
}

const char *deployment_phase_name(enum deployment_phase phase)
{
	static const char *const names[] = {
		[DEPLOYMENT_PENDING] = "Pending",   [DEPLOYMENT_ACTIVE] = "Active",
		[DEPLOYMENT_DRAINING] = "Draining", [DEPLOYMENT_FAILED] = "Failed",
		[DEPLOYMENT_RETIRED] = "Retired",
	};

	assert((size_t)phase < ARRAY_LEN(names));
	return names[phase];
}
