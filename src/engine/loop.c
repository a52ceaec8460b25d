/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops of activities: the standard loop and multi-instance.
 *
 * The token that arrives holds at the activity and opens a scope for the loop; each run is a scope in that one, with a token
 * of its own on the same activity, which finds itself inside a run and does what the activity does. So everything that
 * an activity may hold, waits and sub-processes among it, may run many times, side by side or in a row.
 *
 * The state of the loop are variables of its scope. Names that no expression can write (`#next`) are ours.
 */
#include "engine/behaviour.h"

#define RUNS_MAX 10000

static const struct str items_name = {"#items", 6};
static const struct str next_name = {"#next", 5};
static const struct str instances_name = {"nrOfInstances", 13};
static const struct str completed_name = {"nrOfCompletedInstances", 22};
static const struct str counter_name = {"loopCounter", 11};

static enum result set_int(struct step *step, uint32_t scope, struct str name, int64_t v,
			   struct error *err)
{
	const msgpack_object value = value_int(v);

	return step_set(step, scope, name, &value, err);
}

static int64_t get_int(struct step *step, uint32_t scope, struct str name)
{
	const msgpack_object *value = step_get(step, scope, name);
	int64_t v = 0;

	return value && value_as_int(value, &v) ? v : 0;
}

/* Bounded also when the snapshot says otherwise: memory is taken by it. */
static int64_t run_count(struct step *step, uint32_t loop)
{
	int64_t count = get_int(step, loop, instances_name);

	return count < 0 ? 0 : count > RUNS_MAX ? RUNS_MAX : count;
}

/* The items, if there is a collection, and how many runs a multi-instance has. */
static enum result count_runs(struct step *step, const struct node *node, msgpack_object *items,
			      int64_t *count, struct error *err)
{
	const struct loop_rule *rule = node->loop;
	const struct expression *expr = rule->collection ? rule->collection : rule->cardinality;
	msgpack_object value;
	enum result result = step_eval(step, node, expr, &value, err);

	*items = value_nil();
	if (result != RESULT_OK)
		return result;
	if (rule->collection) {
		if (value.type != MSGPACK_OBJECT_ARRAY)
			return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
					 "the collection of the multi-instance is no list");
		*items = value;
		*count = value.via.array.size;
	} else if (!value_as_int(&value, count) || *count < 0) {
		return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
				 "the cardinality of the multi-instance is no whole number from 0 up");
	}
	if (*count > RUNS_MAX)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_LIMIT,
				 "a multi-instance has at most %d runs", RUNS_MAX);
	return RESULT_OK;
}

static enum result begin_run(struct step *step, const struct node *node, uint32_t loop,
			     struct error *err)
{
	const struct loop_rule *rule = node->loop;
	int64_t next = get_int(step, loop, next_name);
	const msgpack_object *items = step_get(step, loop, items_name);
	uint32_t run;
	enum result result = set_int(step, loop, next_name, next + 1, err);

	if (result == RESULT_OK)
		result = step_open_run(step, node, loop, (uint32_t)next + 1, &run, err);
	if (result == RESULT_OK)
		result = set_int(step, run, counter_name, next + 1, err);
	if (result == RESULT_OK && rule->element.ptr && items &&
	    items->type == MSGPACK_OBJECT_ARRAY && next < items->via.array.size)
		result = step_set(step, run, rule->element, &items->via.array.ptr[next], err);
	if (result == RESULT_OK)
		step_spawn(step, run, node, NULL);
	return result;
}

static struct str output_name(struct step *step, int64_t run)
{
	return str_of(arena_printf(step->env->arena, "#%lld", (long long)run));
}

/* The outputs of the runs in their order; nil for one that did not end. */
static msgpack_object gather_outputs(struct step *step, uint32_t loop, int64_t count)
{
	msgpack_object list = value_array(step->env->arena, (uint32_t)count);
	const struct scope *scope = instance_scope(step->inst, loop);

	for (int64_t i = 0; i < count; i++)
		list.via.array.ptr[i] = value_nil();
	for (uint32_t i = 0; scope && i < scope->variable_count; i++) {
		const struct str name = scope->variables[i].name;
		int64_t run;

		if (name.len > 1 && name.ptr[0] == '#' &&
		    str_to_int64(str_make(name.ptr + 1, name.len - 1), &run) && run >= 1 && run <= count)
			list.via.array.ptr[run - 1] = scope->variables[i].value;
	}
	return list;
}

/* The loop is over: the token at step->at goes on from its activity. */
static enum result finish(struct step *step, const struct node *node, uint32_t loop, int64_t count,
			  struct error *err)
{
	struct token *token = step_token(step, step->at.token);

	if (node->loop->output_variable.ptr) {
		const msgpack_object list = gather_outputs(step, loop, count);
		enum result result = step_assign(step, token->scope, node->loop->output_variable,
						 &list, err);

		if (result != RESULT_OK)
			return result;
	}
	step_clear(step, token->id);
	step_stand(step, step->at.token, node);
	return step_leave(step, node, err);
}

/* A standard loop that is tested first may not run at all. */
static enum result wants_first_run(struct step *step, const struct node *node, bool *wants,
				   struct error *err)
{
	msgpack_object value;
	enum result result;

	*wants = true;
	if (!node->loop->test_before || !node->loop->condition)
		return RESULT_OK;
	result = step_eval(step, node, node->loop->condition, &value, err);
	*wants = result == RESULT_OK && expression_truth(&value);
	return result;
}

static enum result open_loop(struct step *step, const struct node *node, const msgpack_object *items,
			     int64_t count, uint32_t *loop, struct error *err)
{
	enum result result = step_open_loop(step, node, loop, err);

	if (result == RESULT_OK)
		result = set_int(step, *loop, next_name, 0, err);
	if (result == RESULT_OK)
		result = set_int(step, *loop, completed_name, 0, err);
	if (result == RESULT_OK && node->loop->multi)
		result = set_int(step, *loop, instances_name, count, err);
	if (result == RESULT_OK && node->loop->collection)
		result = step_set(step, *loop, items_name, items, err);
	return result;
}

enum result loop_enter(struct step *step, const struct node *node, struct error *err)
{
	const struct loop_rule *rule = node->loop;
	msgpack_object items = value_nil();
	int64_t count = 1;
	bool wants = true;
	uint32_t loop = 0;
	enum result result = rule->multi ? count_runs(step, node, &items, &count, err)
					 : wants_first_run(step, node, &wants, err);

	if (result != RESULT_OK)
		return result;
	if (!wants || !count)
		return finish(step, node, loop, 0, err);
	result = open_loop(step, node, &items, count, &loop, err);
	if (result == RESULT_OK)
		result = step_arm_boundaries(step, node, err);
	for (int64_t i = 0; result == RESULT_OK && i < (rule->parallel ? count : 1); i++)
		result = begin_run(step, node, loop, err);
	if (result == RESULT_OK)
		step_hold(step);
	return result;
}

static enum result take_output(struct step *step, const struct node *node, uint32_t loop,
			       uint32_t run, struct error *err)
{
	int64_t iteration = instance_scope(step->inst, run)->iteration;
	msgpack_object value;
	enum result result;

	if (!node->loop->output)
		return RESULT_OK;
	result = step_eval_in(step, run, node, node->loop->output, &value, err);
	return result == RESULT_OK ? step_set(step, loop, output_name(step, iteration), &value, err)
				   : result;
}

/* Whether the loop is over, now that `completed` runs are. */
static enum result is_over(struct step *step, const struct node *node, uint32_t run, int64_t count,
			   int64_t completed, bool *over, struct error *err)
{
	const struct loop_rule *rule = node->loop;
	msgpack_object value;
	bool holds = false;
	enum result result = RESULT_OK;

	if (rule->condition) {
		result = step_eval_in(step, run, node, rule->condition, &value, err);
		holds = result == RESULT_OK && expression_truth(&value);
	}
	if (rule->multi)
		*over = holds || completed >= count;
	else
		*over = (rule->condition && !holds) || (rule->maximum && completed >= rule->maximum);
	return result;
}

enum result loop_ended(struct step *step, const struct node *node, uint32_t run, struct error *err)
{
	uint32_t loop = instance_scope(step->inst, run)->parent;
	int64_t count = run_count(step, loop);
	int64_t completed = get_int(step, loop, completed_name) + 1;
	bool over = false;
	enum result result = set_int(step, loop, completed_name, completed, err);

	if (result == RESULT_OK)
		result = take_output(step, node, loop, run, err);
	if (result == RESULT_OK)
		result = is_over(step, node, run, count, completed, &over, err);
	if (result != RESULT_OK)
		return result;
	if (over)
		return finish(step, node, loop, count, err);
	step_close(step, run);
	if (!node->loop->multi || !node->loop->parallel)
		result = begin_run(step, node, loop, err);
	if (result == RESULT_OK)
		step_hold(step);
	return result;
}
