/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops of activities: standardLoopCharacteristics and multiInstanceLoopCharacteristics.
 *
 * The notation says how often (loopCardinality), over which data (loopDataInputRef, the name of a variable here), under which
 * name a run sees its item (inputDataItem), and where a result goes (outputDataItem, loopDataOutputRef). It has no
 * expression for a collection or a result; q:collection, q:element, q:output and q:outputVariable give those.
 */
#include "model/bpmn.h"

bool bpmn_is_loop(const struct element *el)
{
	return element_is(el, "standardLoopCharacteristics") ||
	       element_is(el, "multiInstanceLoopCharacteristics");
}

static const struct expression *text_expression(struct bpmn_reader *reader, struct element *parent,
						const char *name)
{
	struct element *el = element_child(parent, name);
	struct str language = el ? element_attribute(el, "language") : STR_NONE;

	if (!el)
		return NULL;
	if (language.ptr && !str_equal_nocase(language, STR("lua")))
		bpmn_unsupported(reader, el->line,
				 "%s in \"%.*s\" is not supported; it is written in lua", name,
				 STR_ARG(language));
	return bpmn_expression(reader, EXPRESSION_VALUE, element_trim(el->text), el->text_line);
}

static const struct expression *q_expression(struct bpmn_reader *reader, struct element *el,
					     const char *name)
{
	const struct attribute *attr = element_q_attribute_find(el, name);

	return attr ? bpmn_expression(reader, EXPRESSION_VALUE, attr->value, attr->line) : NULL;
}

static struct str q_text(struct element *el, const char *name)
{
	const struct attribute *attr = element_q_attribute_find(el, name);

	return attr ? attr->value : STR_NONE;
}

static void refuse_children(struct bpmn_reader *reader, struct element *el,
			    const char *const *known)
{
	for (struct element *child = el->first; child; child = child->next) {
		bool found = child->q || element_is(child, "documentation") ||
			     element_is(child, "extensionElements");

		for (size_t i = 0; known[i]; i++)
			found |= element_is(child, known[i]);
		if (!found)
			bpmn_refuse(reader, child, el);
	}
}

/* The name attribute of a data item, else its id, as some modellers write it. */
static struct str item_name(struct element *parent, const char *which)
{
	struct element *item = element_child(parent, which);
	struct str name = item ? element_attribute(item, "name") : STR_NONE;

	return item && !name.len ? element_attribute(item, "id") : name;
}

static void read_collection(struct bpmn_reader *reader, struct loop_rule *loop, struct element *el)
{
	struct element *ref = element_child(el, "loopDataInputRef");
	unsigned ways;

	loop->collection = q_expression(reader, el, "collection");
	loop->cardinality = text_expression(reader, el, "loopCardinality");
	ways = (loop->collection != NULL) + (loop->cardinality != NULL) + (ref != NULL);
	if (!loop->collection && ref)
		loop->collection = bpmn_expression(reader, EXPRESSION_VALUE,
						   element_trim(ref->text), ref->text_line);
	if (ways != 1)
		bpmn_invalid(reader, el->line,
			     "a multi-instance needs one of loopCardinality, loopDataInputRef and "
			     "q:collection");
}

static void read_element(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct loop_rule *loop = node->loop;
	struct str name = q_text(el, "element");

	if (!name.ptr)
		name = item_name(el, "inputDataItem");
	if (!name.len)
		return;
	loop->element = build_str(reader->build, name);
	if (loop->cardinality)
		bpmn_invalid(reader, el->line,
			     "a multi-instance with loopCardinality has no items to name");
	bpmn_add_loop_variable(reader, el->line, node, name, true);
}

static void read_results(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct element *ref = element_child(el, "loopDataOutputRef");
	struct loop_rule *loop = node->loop;
	struct str item = item_name(el, "outputDataItem");
	struct str into = q_text(el, "outputVariable");

	loop->output = q_expression(reader, el, "output");
	if (item.len && loop->output)
		bpmn_invalid(reader, el->line, "outputDataItem and q:output exclude each other");
	if (item.len && !loop->output) {
		loop->output = bpmn_expression(reader, EXPRESSION_VALUE, item, el->line);
		/* The item's own name may be that of the list's items: then the run gives back what it got. */
		if (!str_equal(item, loop->element))
			bpmn_add_loop_variable(reader, el->line, node, item, false);
	}
	if (!into.ptr && ref)
		into = element_trim(ref->text);
	loop->output_variable = build_str(reader->build, into);
	if ((loop->output != NULL) != (into.len > 0))
		bpmn_invalid(reader, el->line,
			     "the results of a multi-instance need both outputDataItem or q:output, and "
			     "loopDataOutputRef or q:outputVariable");
}

static void read_multi(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	static const char *const known[] = {"loopCardinality",	 "loopDataInputRef",
					    "loopDataOutputRef", "inputDataItem",
					    "outputDataItem",	 "completionCondition", NULL};
	struct str behavior = element_attribute(el, "behavior");
	struct loop_rule *loop = node->loop;

	loop->multi = true;
	loop->parallel = !bpmn_is_true(element_attribute(el, "isSequential"));
	if (behavior.ptr && !str_equal(behavior, STR("All")))
		bpmn_unsupported(reader, el->line, "behavior=\"%.*s\" is not supported",
				 STR_ARG(behavior));
	refuse_children(reader, el, known);
	read_collection(reader, loop, el);
	read_element(reader, node, el);
	read_results(reader, node, el);
	loop->condition = text_expression(reader, el, "completionCondition");
}

static void read_standard(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	static const char *const known[] = {"loopCondition", NULL};
	struct str maximum = element_attribute(el, "loopMaximum");
	struct loop_rule *loop = node->loop;

	refuse_children(reader, el, known);
	loop->test_before = bpmn_is_true(element_attribute(el, "testBefore"));
	if (maximum.ptr && (!str_to_int64(maximum, &loop->maximum) || loop->maximum < 1))
		bpmn_invalid(reader, el->line, "loopMaximum=\"%.*s\" is no number from 1 up",
			     STR_ARG(maximum));
	loop->condition = text_expression(reader, el, "loopCondition");
	if (!loop->condition && !loop->maximum)
		bpmn_invalid(reader, el->line,
			     "a loop needs a loopCondition or a loopMaximum: nothing else ends it");
}

/* Names that every loop of the process gives to its runs. */
static void add_counters(struct bpmn_reader *reader, int line)
{
	static const char *const counters[] = {"loopCounter", "nrOfInstances",
					       "nrOfCompletedInstances"};
	const struct process *process = reader->process;

	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		const struct variable *taken = NULL;

		for (uint32_t k = 0; k < process->variable_count; k++)
			if (str_equal(process->variables[k].name, str_of(counters[i])))
				taken = &process->variables[k];
		if (!taken)
			bpmn_add_loop_variable(reader, line, NULL, str_of(counters[i]), true);
		else if (!taken->readonly)
			bpmn_invalid(reader, taken->line,
				     "\"%s\" cannot name a variable: loops of the process use the word",
				     counters[i]);
	}
}

void bpmn_read_loop(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	if (node->loop) {
		bpmn_invalid(reader, el->line, "an activity has one kind of loop at most");
		return;
	}
	node->loop = arena_zalloc(reader->build->arena, sizeof(*node->loop));
	node->loop->line = el->line;
	add_counters(reader, el->line);
	if (element_is(el, "standardLoopCharacteristics"))
		read_standard(reader, node, el);
	else
		read_multi(reader, node, el);
}
