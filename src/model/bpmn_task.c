/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs of tasks and call activities: q:param and q:output. Whether their names fit the process is told by
 * bpmn_check.c and, for calls, bpmn_link.c.
 */
#include "model/bpmn.h"

void bpmn_read_param(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct param_rule param = {
		.name = build_str(build, bpmn_required(reader, el, "name")),
		.expression = bpmn_required_expression(reader, el, "expression"),
		.line = el->line,
	};

	if (node->kind != NODE_CALL)
		bpmn_check_name(reader, el->line, "q:param", param.name);
	for (uint32_t i = 0; i < node->param_count; i++)
		if (param.name.ptr && str_equal(node->params[i].name, param.name))
			bpmn_invalid(reader, el->line, "the q:param \"%.*s\" is given twice",
				     STR_ARG(param.name));
	if (node->param_count == BUILD_RULES_MAX) {
		bpmn_invalid(reader, el->line, "a node holds at most %d q:param", BUILD_RULES_MAX);
		return;
	}
	node->params = build_grow(build->arena, node->params, node->param_count,
				  sizeof(node->params[0]));
	node->params[node->param_count++] = param;
}

void bpmn_read_output(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct output_rule output = {
		.variable = build_str(build, bpmn_required(reader, el, "variable")),
		.expression = bpmn_required_expression(reader, el, "expression"),
		.line = el->line,
	};

	if (node->output_count == BUILD_RULES_MAX) {
		bpmn_invalid(reader, el->line, "a node holds at most %d q:output", BUILD_RULES_MAX);
		return;
	}
	node->outputs = build_grow(build->arena, node->outputs, node->output_count,
				   sizeof(node->outputs[0]));
	node->outputs[node->output_count++] = output;
}
