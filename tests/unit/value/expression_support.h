/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of expressions share: one state, one scope, and assertions that take source text and JSON.
 * Each program includes it once. Life cycle: bench_open/bench_close around a test.
 */
#ifndef SUTRA_TESTS_EXPRESSION_SUPPORT_H
#define SUTRA_TESTS_EXPRESSION_SUPPORT_H

#include "tests/support/testing.h"
#include "value/expression.h"

#define BENCH_PAYLOAD \
	"{\"z\":1,\"amount\":150,\"kind\":\"card\",\"note\":null,\"big\":9223372036854775807," \
	"\"low\":-9223372036854775808," \
	"\"pi\":3.141592653589793,\"one\":1.0,\"ok\":true,\"items\":[3,null,\"x\",{\"q\":2}]," \
	"\"none\":[],\"void\":{}," \
	"\"lines\":[{\"q\":1,\"p\":2.5},{\"q\":3,\"p\":4}],\"m\":{\"b\":1,\"a\":2,\"c\":3}}"

struct bench {
	struct expression_state *state;
	struct arena arena;
	msgpack_object payload, total, blob;
	struct expression_name names[4];
	struct header header_items[4];
	struct header_list headers;
	struct str assignable[3];
	struct expression_scope scope;
	struct error err;
};

static inline void bench_open(struct bench *b, struct expression_limits limits)
{
	enum result res;

	memset(b, 0, sizeof(*b));
	b->state = expression_state_new(&limits);
	arena_init(&b->arena);
	res = value_json_read(&b->arena, STR(BENCH_PAYLOAD), true, &VALUE_LIMITS_DEFAULT,
			      &b->payload, &b->err);
	ck_assert_msg(res == RESULT_OK, "%s", b->err.text);
	b->total = value_int(40);
	b->blob = value_bytes(STR("plain"));
	b->names[0] = (struct expression_name){STR("payload"), &b->payload};
	b->names[1] = (struct expression_name){STR("total"), &b->total};
	b->names[2] = (struct expression_name){STR("blob"), &b->blob};
	b->names[3] = (struct expression_name){STR("unset"), NULL};
	b->header_items[0] = (struct header){STR("X-Req"), value_text(STR("first"))};
	b->header_items[1] = (struct header){STR("x-req"), value_text(STR("last"))};
	b->header_items[2] = (struct header){STR("raw"), value_bytes(STR("\xff\x00\xfe"))};
	b->header_items[3] = (struct header){STR("void"), value_nil()};
	b->headers = (struct header_list){b->header_items, ARRAY_LEN(b->header_items)};
	b->assignable[0] = STR("total");
	b->assignable[1] = STR("other");
	b->assignable[2] = STR("third");
	b->scope = (struct expression_scope){
		.names = b->names,
		.name_count = ARRAY_LEN(b->names),
		.headers = &b->headers,
		.event = {.id = STR("e1"),
			  .type = STR("order"),
			  .channel = STR("in"),
			  .time_us = 1000000},
		.instance = {.id = STR("i1"), .started_us = 2000000},
		.process_id = STR("proc"),
		.tenant = STR("acme"),
		.now_us = INT64_C(1700000000123000),
		.uuid_seed = {STR("seed")},
		.assignable = b->assignable,
		.assignable_count = ARRAY_LEN(b->assignable),
	};
}

static inline void bench_close(struct bench *b)
{
	expression_state_free(&b->state);
	ck_assert_ptr_null(b->state);
	arena_done(&b->arena);
}

/* Compiles, evaluates or runs, and forgets; assignments become a map. */
static inline enum result bench_eval(struct bench *b, enum expression_kind kind, const char *source,
				     msgpack_object *out)
{
	struct expression expr = {kind, str_of(source), 0, "order.bpmn", 12};
	struct expression *items[] = {&expr};
	struct expression_set set = {items, 1};
	struct expression_assignment *made;
	enum result res;
	size_t count;

	b->err = ERROR_INIT;
	res = expression_state_load(b->state, &set, &b->err);
	ck_assert_msg(res == RESULT_OK, "%s: %s", source, b->err.text);
	if (kind == EXPRESSION_VALUE) {
		res = expression_eval(b->state, &set, &expr, &b->scope, &b->arena, out, &b->err);
	} else {
		res = expression_run(b->state, &set, &expr, &b->scope, &b->arena, &made, &count,
				     &b->err);
		if (res == RESULT_OK) {
			*out = value_map(&b->arena, (uint32_t)count);
			for (size_t i = 0; i < count; i++) {
				out->via.map.ptr[i].key = value_text(made[i].name);
				out->via.map.ptr[i].val = made[i].value;
			}
		}
	}
	expression_state_unload(b->state, &set);
	return res;
}

static inline void bench_gives(struct bench *b, enum expression_kind kind, const char *source,
			       const char *json)
{
	struct buf text = BUF_INIT;
	msgpack_object out;
	enum result res = bench_eval(b, kind, source, &out);

	ck_assert_msg(res == RESULT_OK, "%s: %s", source, b->err.text);
	res = value_json_write(&out, &text, &b->err);
	ck_assert_msg(res == RESULT_OK, "%s: %s", source, b->err.text);
	ck_assert_msg(str_equal(buf_str(&text), str_of(json)), "%s\n  have %s\n  want %s", source,
		      text.data, json);
	buf_done(&text);
}

static inline void bench_fails(struct bench *b, enum expression_kind kind, const char *source,
			       enum code code, const char *part)
{
	msgpack_object out = value_int(77);
	enum result res = bench_eval(b, kind, source, &out);

	ck_assert_msg(res == RESULT_REJECT, "%s: no failure", source);
	ck_assert_msg(b->err.code == code, "%s: %s %s", source, code_text(b->err.code),
		      b->err.text);
	ck_assert_msg(strstr(b->err.text, part), "%s\n  have %s\n  want %s", source, b->err.text,
		      part);
	ck_assert_int_eq(out.via.i64, 77);
}

struct bench_row {
	const char *source, *want;
};

#define GIVES(b, source, json) bench_gives(b, EXPRESSION_VALUE, source, json)
#define RUNS(b, source, json)  bench_gives(b, EXPRESSION_SCRIPT, source, json)
#define FAILS(b, source, part) \
	bench_fails(b, EXPRESSION_VALUE, source, CODE_EXPRESSION_FAILED, part)
#define RUN_FAILS(b, source, part) \
	bench_fails(b, EXPRESSION_SCRIPT, source, CODE_EXPRESSION_FAILED, part)
#define BREACHES(b, source, part) \
	bench_fails(b, EXPRESSION_SCRIPT, source, CODE_EXPRESSION_LIMIT, part)

static inline void bench_rows(const struct bench_row *rows, size_t count)
{
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	for (size_t i = 0; i < count; i++)
		GIVES(&b, rows[i].source, rows[i].want);
	bench_close(&b);
}

#endif
