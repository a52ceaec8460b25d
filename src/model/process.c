/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes as the engine and the router see them: looking up nodes, which messages a source takes, which values a
 * variable takes.
 */
#include "model/process.h"
#include "model/glob.h"

const struct node *process_node(const struct process *process, struct str id)
{
	uint32_t low = 0, high = process->node_count;

	if (!process->nodes_by_id) {
		for (uint32_t i = 0; i < process->node_count; i++)
			if (str_equal(process->nodes[i]->id, id))
				return process->nodes[i];
		return NULL;
	}
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = str_compare(process->nodes_by_id[middle]->id, id);

		if (order == 0)
			return process->nodes_by_id[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

const char *node_kind_name(enum node_kind kind)
{
	static const char *const names[NODE_KIND_COUNT] = {
		[NODE_START] = "start event",
		[NODE_START_TIMER] = "timer start event",
		[NODE_END] = "end event",
		[NODE_END_TERMINATE] = "terminate end event",
		[NODE_END_ERROR] = "error end event",
		[NODE_CATCH] = "intermediate catch event",
		[NODE_TIMER] = "timer catch event",
		[NODE_LINK_CATCH] = "link catch event",
		[NODE_RECEIVE] = "receive task",
		[NODE_USER] = "user task",
		[NODE_THROW] = "intermediate throw event",
		[NODE_LINK_THROW] = "link throw event",
		[NODE_SEND] = "send task",
		[NODE_SERVICE] = "service task",
		[NODE_SCRIPT] = "script task",
		[NODE_PASS] = "task",
		[NODE_EXCLUSIVE] = "exclusive gateway",
		[NODE_PARALLEL] = "parallel gateway",
		[NODE_INCLUSIVE] = "inclusive gateway",
		[NODE_EVENT_GATEWAY] = "event-based gateway",
		[NODE_SUBPROCESS] = "sub-process",
		[NODE_EVENT_SUBPROCESS] = "event sub-process",
		[NODE_CALL] = "call activity",
		[NODE_BOUNDARY] = "boundary event",
		[NODE_BOUNDARY_TIMER] = "timer boundary event",
		[NODE_BOUNDARY_ERROR] = "error boundary event",
		[NODE_EVENT_START] = "start event of an event sub-process",
		[NODE_EVENT_START_TIMER] = "timer start event of an event sub-process",
		[NODE_EVENT_START_ERROR] = "error start event",
	};

	assert(kind < NODE_KIND_COUNT);
	return names[kind];
}

bool node_is_activity(const struct node *node)
{
	switch (node->kind) {
	case NODE_RECEIVE:
	case NODE_USER:
	case NODE_SEND:
	case NODE_SERVICE:
	case NODE_SCRIPT:
	case NODE_PASS:
	case NODE_SUBPROCESS:
	case NODE_CALL:
		return true;
	default:
		return false;
	}
}

bool source_takes_type(const struct source *source, struct str message_type)
{
	if (source->type_value.ptr)
		return message_type.ptr && str_equal(source->type_value, message_type);
	if (source->type_pattern.ptr)
		return message_type.ptr && glob_match(source->type_pattern, message_type);
	return true;
}

bool source_types_overlap(const struct source *a, const struct source *b)
{
	bool any_a = !a->type_value.ptr && !a->type_pattern.ptr;
	bool any_b = !b->type_value.ptr && !b->type_pattern.ptr;

	if (any_a || any_b)
		return true;
	if (a->type_value.ptr)
		return source_takes_type(b, a->type_value);
	if (b->type_value.ptr)
		return source_takes_type(a, b->type_value);
	return glob_overlap(a->type_pattern, b->type_pattern);
}

bool variable_accepts(const struct variable *variable, const msgpack_object *value)
{
	if (!value || value_is_nil(value))
		return true;
	switch (variable->type) {
	case VARIABLE_ANY:
		return true;
	case VARIABLE_STRING:
		return value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_BIN;
	case VARIABLE_INTEGER:
		return value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ||
		       value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;
	case VARIABLE_NUMBER:
		return value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ||
		       value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ||
		       value->type == MSGPACK_OBJECT_FLOAT64 ||
		       value->type == MSGPACK_OBJECT_FLOAT32;
	case VARIABLE_BOOLEAN:
		return value->type == MSGPACK_OBJECT_BOOLEAN;
	case VARIABLE_MAP:
		return value->type == MSGPACK_OBJECT_MAP;
	case VARIABLE_LIST:
		return value->type == MSGPACK_OBJECT_ARRAY;
	}
	return false;
}
