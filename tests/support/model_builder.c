/* SPDX-License-Identifier: Apache-2.0 */
/* Deployments in code. Lists grow one by one in the arena: models of tests are small. */
#include "tests/support/model_builder.h"

#include "base/alloc.h"

struct model {
	struct deployment *deployment;
	struct process *process;
	struct node *node;
};

/* One more cleared element behind `*items`; returns where it is. */
static void *append(struct arena *arena, void *items, uint32_t *count, size_t size)
{
	void **list = items;
	char *grown = arena_zalloc(arena, (*count + 1) * size);

	if (*count)
		memcpy(grown, *list, *count * size);
	*list = grown;
	return grown + (*count)++ * size;
}

static struct str text(struct model *model, const char *s)
{
	return arena_str(&model->deployment->arena, str_of(s));
}

struct model *model_new(const char *tenant)
{
	struct model *model = mem_zalloc(sizeof(*model));
	struct deployment *deployment = mem_zalloc(sizeof(*deployment));

	atomic_init(&deployment->refs, 1);
	arena_init(&deployment->arena);
	model->deployment = deployment;
	deployment->id = STR("dep-0123456789abcdef01234567");
	deployment->tenant = text(model, tenant);
	deployment->module = STR("test");
	deployment->version = STR("1");
	deployment->archive = STR("");
	return model;
}

void model_free(struct model **model)
{
	if (!*model)
		return;
	if ((*model)->deployment)
		deployment_unref(&(*model)->deployment);
	free(*model);
	*model = NULL;
}

struct deployment *model_deployment(struct model *model)
{
	struct deployment *deployment = model->deployment;

	for (uint32_t i = 0; i < deployment->process_count; i++) {
		struct process *process = deployment->processes[i];

		process->variable_names = arena_alloc(&deployment->arena,
						      process->variable_count * sizeof(struct str));
		for (uint32_t k = 0; k < process->variable_count; k++)
			process->variable_names[k] = process->variables[k].name;
		process->assignable_count = process->variable_count;
	}
	model->deployment = NULL;
	return deployment;
}

const struct expression *model_expression(struct model *model, enum expression_kind kind,
					  const char *source)
{
	struct expression_set *set = &model->deployment->expressions;
	struct expression *expression;

	if (!source)
		return NULL;
	expression = arena_zalloc(&model->deployment->arena, sizeof(*expression));
	expression->kind = kind;
	expression->source = text(model, source);
	expression->index = set->count;
	expression->file = "test.bpmn";
	expression->line = (int)set->count + 1;
	*(struct expression **)append(&model->deployment->arena, &set->items, &set->count,
				      sizeof(expression)) = expression;
	return expression;
}

struct channel *model_channel(struct model *model, const char *name,
			      enum channel_direction direction)
{
	struct deployment *deployment = model->deployment;
	struct channel *channel = arena_zalloc(&deployment->arena, sizeof(*channel));

	channel->name = text(model, name);
	channel->direction = direction;
	channel->transport = channel->connection = STR("local");
	channel->bind = channel->name;
	channel->codec = STR("json");
	channel->max_in_flight = 256;
	channel->unmatched_hold_ms = -1;
	channel->file = "channels.conf";
	channel->line = (int)deployment->channel_count + 1;
	*(struct channel **)append(&deployment->arena, &deployment->channels,
				   &deployment->channel_count, sizeof(channel)) = channel;
	return channel;
}

struct process *model_process(struct model *model, const char *id)
{
	struct deployment *deployment = model->deployment;
	struct process *process = arena_zalloc(&deployment->arena, sizeof(*process));

	process->id = text(model, id);
	process->file = "test.bpmn";
	process->line = 1;
	*(struct process **)append(&deployment->arena, &deployment->processes,
				   &deployment->process_count, sizeof(process)) = process;
	model->process = process;
	return process;
}

struct variable *model_variable(struct model *model, const char *name, enum variable_type type,
				const char *source)
{
	struct process *process = model->process;
	struct variable *variable = append(&model->deployment->arena, &process->variables,
					   &process->variable_count, sizeof(*variable));

	variable->name = text(model, name);
	variable->type = type;
	variable->source = model_expression(model, EXPRESSION_VALUE, source);
	return variable;
}

struct node *model_node(struct model *model, const char *id, enum node_kind kind)
{
	struct process *process = model->process;
	struct node *node = arena_zalloc(&model->deployment->arena, sizeof(*node));

	node->id = text(model, id);
	node->kind = kind;
	node->index = process->node_count;
	node->line = (int)process->node_count + 1;
	node->process = process;
	*(struct node **)append(&model->deployment->arena, &process->nodes, &process->node_count,
				sizeof(node)) = node;
	model->node = node;
	return node;
}

static struct node *find_node(struct model *model, const char *id)
{
	const struct node *node = process_node(model->process, str_of(id));

	assert(node);
	return model->process->nodes[node->index];
}

struct flow *model_flow(struct model *model, const char *from, const char *to,
			const char *condition)
{
	struct arena *arena = &model->deployment->arena;
	struct process *process = model->process;
	struct node *source = find_node(model, from), *target = find_node(model, to);
	struct flow *flow = arena_zalloc(arena, sizeof(*flow));

	flow->index = process->flow_count;
	flow->id = str_of(arena_printf(arena, "flow-%u", flow->index));
	flow->from = source;
	flow->to = target;
	flow->condition = model_expression(model, EXPRESSION_VALUE, condition);
	*(struct flow **)append(arena, &process->flows, &process->flow_count, sizeof(flow)) = flow;
	*(struct flow **)append(arena, &source->outgoing, &source->outgoing_count,
				sizeof(flow)) = flow;
	*(struct flow **)append(arena, &target->incoming, &target->incoming_count,
				sizeof(flow)) = flow;
	return flow;
}

void model_default_flow(struct model *model, const char *from, const char *to)
{
	find_node(model, from)->default_flow = model_flow(model, from, to, NULL);
}

struct source *model_source(struct model *model, const char *channel)
{
	struct source *source = arena_zalloc(&model->deployment->arena, sizeof(*source));

	source->channel = text(model, channel);
	source->name = STR("payload");
	model->node->source = source;
	return source;
}

void model_validate(struct model *model, const char *expression, const char *code)
{
	struct source *source = model->node->source;
	struct validate_rule *rule;

	assert(source);
	rule = append(&model->deployment->arena, &source->validates, &source->validate_count,
		      sizeof(*rule));
	rule->expression = model_expression(model, EXPRESSION_VALUE, expression);
	rule->code = text(model, code);
}

struct alias_rule *model_alias(struct model *model, const char *name, const char *expression,
			       const char *value, bool unique)
{
	struct node *node = model->node;
	struct alias_rule *rule = append(&model->deployment->arena, &node->aliases,
					 &node->alias_count, sizeof(*rule));

	rule->name = text(model, name);
	rule->expression = model_expression(model, EXPRESSION_VALUE, expression);
	rule->value = model_expression(model, EXPRESSION_VALUE, value);
	rule->unique = unique;
	return rule;
}

struct send_rule *model_send(struct model *model, const char *channel, const char *body)
{
	struct send_rule *rule = arena_zalloc(&model->deployment->arena, sizeof(*rule));

	rule->channel = text(model, channel);
	rule->body = model_expression(model, EXPRESSION_VALUE, body);
	model->node->send = rule;
	return rule;
}

struct reply_rule *model_reply(struct model *model, const char *body, const char *channel)
{
	struct reply_rule *rule = arena_zalloc(&model->deployment->arena, sizeof(*rule));

	rule->body = model_expression(model, EXPRESSION_VALUE, body);
	rule->channel = text(model, channel);
	model->node->reply = rule;
	return rule;
}

void model_header(struct model *model, const char *name, const char *value)
{
	struct node *node = model->node;
	struct header_rule *rule = append(&model->deployment->arena, &node->headers,
					  &node->header_count, sizeof(*rule));

	rule->name = text(model, name);
	rule->value = model_expression(model, EXPRESSION_VALUE, value);
}

void model_script(struct model *model, const char *script)
{
	model->node->script = model_expression(model, EXPRESSION_SCRIPT, script);
}
