/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that the reader takes is one that the writer could have written: packed again it reads back, and then it does
 * not change any more. Any other is refused with its one code.
 */
#include "engine/failed.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_tokens(const struct instance *inst)
{
	for (uint32_t i = 0; i < inst->token_count; i++) {
		assert(instance_token(inst, inst->tokens[i].id) == &inst->tokens[i]);
		assert(instance_scope(inst, inst->tokens[i].scope));
		assert(inst->tokens[i].node.ptr && inst->tokens[i].id < inst->next_token);
	}
	for (uint32_t i = 0; i < inst->scope_count; i++) {
		uint32_t depth = 0;

		for (const struct scope *s = &inst->scopes[i]; s->id != s->parent;
		     s = instance_scope(inst, s->parent))
			assert(++depth < inst->scope_count);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct buf first = BUF_INIT, second = BUF_INIT;
	struct error err = ERROR_INIT;
	struct instance *inst = NULL, *again = NULL;
	struct event event;
	struct arena arena;
	enum result result;

	arena_init(&arena);
	result = snapshot_unpack(&arena, str_make(bytes, len), ID_NONE, STR("t"), 1, &inst, &err);
	if (result) {
		assert(result == RESULT_FATAL && err.code == CODE_RUNTIME_SNAPSHOT_INVALID &&
		       err.text[0] && !inst);
	} else {
		check_tokens(inst);
		if (event_from_value(&arena, &inst->failure_event, &event, &err))
			assert(err.code == CODE_RUNTIME_SNAPSHOT_INVALID);
		snapshot_pack(inst, &first);
		result = snapshot_unpack(&arena, buf_str(&first), ID_NONE, STR("t"), 1, &again,
					 &err);
		assert(!result);
		snapshot_pack(again, &second);
		assert(str_equal(buf_str(&first), buf_str(&second)));
	}
	buf_done(&first);
	buf_done(&second);
	arena_done(&arena);
	return 0;
}
