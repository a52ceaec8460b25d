/* SPDX-License-Identifier: Apache-2.0 */
/* Timers: when one is due, and what comes of it. */
#include <inttypes.h>

#include "engine/behaviour.h"

enum result engine_fire(const struct step_env *env, const struct instance *inst, uint32_t token,
			int64_t due_us, struct step_result *out, struct error *err)
{
	const struct token *waiting = instance_token(inst, token);
	const struct event event = {.time_us = due_us};

	if (inst->status != INSTANCE_SUSPENDED || !waiting || waiting->state != TOKEN_WAITING ||
	    !waiting->due_us || waiting->due_us != due_us)
		return error_set(err, RESULT_AGAIN, CODE_NONE,
				 "token %u has no timer due at %" PRId64, token, due_us);
	return engine_resume(env, inst, token, &event, out, err);
}
