/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any value as expressions see it: passed on it is the same value, every way of walking over it finds the same, as JSON it comes
 * back the same, and a second evaluation gives the same bytes. The input is the value in MessagePack.
 */
#include "value/expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const char script[] =
	"local function must(holds, what) if not holds then error('BROKEN ' .. what) end end\n"
	"total = payload\n"
	"if type(payload) == 'table' then\n"
	"  local n, before = 0, nil\n"
	"  for k, v in pairs(payload) do\n"
	"    n = n + 1\n"
	"    must(before == nil or before < k, 'order')\n"
	"    must(v == null or payload[k] ~= nil, 'index')\n"
	"    before = k\n"
	"  end\n"
	"  must(n == len(payload), 'len')\n"
	"  must(n == #keys(payload), 'keys')\n"
	"  must(n == #map(payload, function(v) return v end), 'map')\n"
	"  must(n == len(filter(payload, function() return true end)), 'filter')\n"
	"  must(all(payload, function() return true end), 'all')\n"
	"  must(not any(payload, function() return false end), 'any')\n"
	"  pcall(join, payload) pcall(sum, payload) pcall(merge, payload, payload)\n"
	"  pcall(table.concat, payload) pcall(table.unpack, payload)\n"
	"end\n"
	"local ok, text = pcall(json.encode, payload)\n"
	"if ok then\n"
	"  other = json.decode(text)\n"
	"  must(json.encode(other) == text, 'JSON')\n"
	"end\n";

static enum result run(const msgpack_object *payload, struct arena *arena, struct buf *out)
{
	const struct expression_limits limits = {200000, 4 << 20, 16 << 20, 0, NULL};
	struct expression expr = {EXPRESSION_SCRIPT, str_make(script, sizeof(script) - 1), 0, "f", 1};
	struct expression *items[] = {&expr};
	struct expression_set set = {items, 1};
	struct expression_name names[] = {{STR("payload"), payload}};
	struct str assignable[] = {STR("total"), STR("other")};
	struct expression_scope scope = {
		.names = names,
		.name_count = 1,
		.assignable = assignable,
		.assignable_count = ARRAY_LEN(assignable),
	};
	struct expression_state *state = expression_state_new(&limits);
	struct expression_assignment *made = NULL;
	struct error err = ERROR_INIT;
	size_t count = 0;
	enum result res = expression_state_load(state, &set, &err);

	assert(res == RESULT_OK);
	res = expression_run(state, &set, &expr, &scope, arena, &made, &count, &err);
	if (res != RESULT_OK) {
		assert(res == RESULT_REJECT && !strstr(err.text, "BROKEN"));
		assert(err.code == CODE_EXPRESSION_FAILED || err.code == CODE_EXPRESSION_LIMIT);
		buf_add_text(out, err.text);
	} else {
		assert(count >= 1 && value_equal(&made[0].value, payload));
		for (size_t i = 0; i < count; i++)
			value_pack(&made[i].value, out);
	}
	expression_state_free(&state);
	return res;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct value_limits limits = {
		.max_bytes = 1 << 20, .max_depth = 40, .max_values = 2000};
	struct buf first = BUF_INIT, second = BUF_INIT;
	struct error err = ERROR_INIT;
	msgpack_object payload;
	struct arena arena;

	arena_init(&arena);
	if (value_unpack(&arena, str_make(bytes, len), true, &limits, &payload, &err) == RESULT_OK) {
		enum result res = run(&payload, &arena, &first);

		assert(run(&payload, &arena, &second) == res);
		assert(str_equal(buf_str(&first), buf_str(&second)));
	}
	buf_done(&first);
	buf_done(&second);
	arena_done(&arena);
	return 0;
}
