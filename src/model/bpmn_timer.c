/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of the notation: a timerEventDefinition with one of timeDuration, timeDate and timeCycle. The text is what ISO 8601 has
 * for it, and is read here, so that a wrong one is found at load; or an expression behind "=", which gives such a text when the
 * timer is armed.
 */
#include "model/bpmn.h"

struct timer_rule *bpmn_timer(struct bpmn_reader *reader, enum timer_kind kind, struct str text,
			      int line)
{
	struct build *build = reader->build;
	struct timer_rule *rule = arena_zalloc(build->arena, sizeof(*rule));
	struct error why = ERROR_INIT;

	/* Blanks around it are layout; the lines before it count. */
	for (; text.len && memchr(" \t\r\n", text.ptr[0], 4); text = str_make(text.ptr + 1, text.len - 1))
		line += text.ptr[0] == '\n';
	text = build_str(build, element_trim(text));
	*rule = (struct timer_rule){.kind = kind};
	if (text.len && text.ptr[0] == '=') {
		rule->expression = bpmn_expression(reader, EXPRESSION_VALUE,
						   str_make(text.ptr + 1, text.len - 1), line);
		rule->text = text;
	} else if (timer_parse(kind, text, rule, &why) != RESULT_OK) {
		bpmn_invalid(reader, line, "%s", why.text);
	}
	rule->line = line;
	return rule;
}

static bool read_kind(const struct element *el, enum timer_kind *kind)
{
	for (int i = TIMER_DURATION; i <= TIMER_CYCLE; i++)
		if (element_is(el, timer_kind_name((enum timer_kind)i))) {
			*kind = (enum timer_kind)i;
			return true;
		}
	return false;
}

static void check_timer(struct bpmn_reader *reader, struct node *node, int line)
{
	if (node->kind != NODE_START_TIMER)
		return;
	if (node->container) {
		bpmn_invalid(reader, line, "the start event of a sub-process takes no timer");
		node->kind = NODE_START;
	} else if (node->timer && node->timer->expression) {
		bpmn_invalid(reader, node->timer->line,
			     "the timer of a start event is no expression: there is no instance yet");
	}
}

void bpmn_read_timer(struct bpmn_reader *reader, struct node *node, struct element *definition)
{
	unsigned refused = reader->refused;

	for (struct element *el = definition->first; el; el = el->next) {
		struct str language = element_attribute(el, "language");
		enum timer_kind kind;

		if (!read_kind(el, &kind)) {
			if (!el->q && !element_is(el, "documentation") &&
			    !element_is(el, "extensionElements"))
				bpmn_refuse(reader, el, definition);
			continue;
		}
		if (language.ptr && !str_equal_nocase(language, STR("lua")))
			bpmn_unsupported(reader, el->line,
					 "timers in \"%.*s\" are not supported; they are written in lua",
					 STR_ARG(language));
		if (node->timer)
			bpmn_invalid(reader, el->line, "a timer has one of timeDuration, timeDate and timeCycle");
		else
			node->timer = bpmn_timer(reader, kind, el->text, el->text_line);
	}
	if (!node->timer && refused == reader->refused)
		bpmn_invalid(reader, definition->line,
			     "a timerEventDefinition needs a timeDuration, timeDate or timeCycle");
	check_timer(reader, node, definition->line);
}
