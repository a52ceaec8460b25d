/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any source is checked without harm; what compiles ends within low bounds, the same way twice in one state and once in a
 * fresh one. The first byte chooses between value and script.
 */
#include "value/expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

struct verdict {
	enum result result;
	enum code code;
	struct buf bytes;
};

static void evaluate(struct expression_state *state, const struct expression_set *set,
		     struct verdict *out)
{
	struct arena arena;
	struct error err = ERROR_INIT;
	struct expression_assignment *made;
	msgpack_object payload, value;
	struct expression_name names[] = {{STR("payload"), &payload}};
	struct str assignable[] = {STR("total"), STR("other")};
	struct header header = {STR("X-Req"), value_text(STR("r1"))};
	struct header_list headers = {&header, 1};
	struct expression_scope scope = {
		.names = names,
		.name_count = ARRAY_LEN(names),
		.headers = &headers,
		.event = {.id = STR("e1"), .time_us = 1},
		.now_us = 1,
		.assignable = assignable,
		.assignable_count = ARRAY_LEN(assignable),
	};
	size_t count = 0;
	enum result res;

	arena_init(&arena);
	res = value_json_read(
		&arena,
		STR("{\"b\":[1,null,{\"q\":2.5}],\"a\":\"text\",\"c\":{\"z\":1,\"y\":null}}"), true,
		&VALUE_LIMITS_DEFAULT, &payload, &err);
	assert(res == RESULT_OK);
	out->bytes = BUF_INIT;
	if (set->items[0]->kind == EXPRESSION_VALUE) {
		out->result = expression_eval(state, set, set->items[0], &scope, &arena, &value,
					      &err);
		if (out->result == RESULT_OK)
			value_pack(&value, &out->bytes);
	} else {
		out->result = expression_run(state, set, set->items[0], &scope, &arena, &made,
					     &count, &err);
		for (size_t i = 0; out->result == RESULT_OK && i < count; i++) {
			buf_add_str(&out->bytes, made[i].name);
			value_pack(&made[i].value, &out->bytes);
		}
	}
	out->code = err.code;
	assert(out->result == RESULT_OK ||
	       (out->result == RESULT_REJECT && err.text[0] &&
		(err.code == CODE_EXPRESSION_FAILED || err.code == CODE_EXPRESSION_LIMIT)));
	arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct expression_limits limits = {5000, 1 << 18, 1 << 20, 0, NULL};
	const struct str names[] = {STR("payload")}, assignable[] = {STR("total"), STR("other")};
	struct expression expr = {EXPRESSION_VALUE, STR(""), 0, "f", 1};
	struct expression *items[] = {&expr};
	struct expression_set set = {items, 1};
	struct expression_finding findings[4];
	struct expression_state *state;
	struct error err = ERROR_INIT;
	struct verdict verdicts[3];
	size_t count;

	if (len) {
		expr.kind = bytes[0] & 1 ? EXPRESSION_SCRIPT : EXPRESSION_VALUE;
		expr.source = str_make(bytes + 1, len - 1);
	}
	count = expression_check(&expr, names, 1, assignable, 2, findings, ARRAY_LEN(findings));
	for (size_t i = 0; i < count && i < ARRAY_LEN(findings); i++) {
		assert(findings[i].line >= 1 && findings[i].column >= 1 && findings[i].text[0]);
		assert(!strstr(findings[i].text, "cannot be checked"));
	}
	state = expression_state_new(&limits);
	if (expression_state_load(state, &set, &err) != RESULT_OK) {
		/* What does not compile was found. */
		assert(count > 0 && err.code != CODE_NONE);
		expression_state_free(&state);
		return 0;
	}
	evaluate(state, &set, &verdicts[0]);
	evaluate(state, &set, &verdicts[1]);
	expression_state_free(&state);
	state = expression_state_new(&limits);
	assert(expression_state_load(state, &set, &err) == RESULT_OK);
	evaluate(state, &set, &verdicts[2]);
	expression_state_free(&state);
	for (int i = 0; i < 3; i++) {
		assert(verdicts[i].result == verdicts[0].result &&
		       verdicts[i].code == verdicts[0].code);
		assert(str_equal(buf_str(&verdicts[i].bytes), buf_str(&verdicts[0].bytes)));
	}
	for (int i = 0; i < 3; i++)
		buf_done(&verdicts[i].bytes);
	return 0;
}
