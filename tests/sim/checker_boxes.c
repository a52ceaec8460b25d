/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes: whichever of its items has its effect first begins one, by a unique alias; all others go to it, though it may not be there
 * when they come, or not wait for them.
 */
#include "tests/sim/checker_private.h"

#include <stdio.h>

void checker_item(struct checker *checker, const struct load_event *event, struct id instance)
{
	struct load_box *box = &checker->load->boxes[event->box];

	if (id_is_none(box->instance))
		box->instance = instance;
	if (!id_equal(box->instance, instance))
		sim_fail(checker->sim, "item %s of box %s is in another", event->id, box->id);
}

static struct load_box *box_of(struct checker *checker, struct id instance)
{
	for (int i = 0; i < checker->load->box_count; i++)
		if (id_equal(checker->load->boxes[i].instance, instance))
			return &checker->load->boxes[i];
	return NULL;
}

/* `{"box":"b-1","n":2}`, with as many as have come before. */
void checker_packed(struct checker *checker, struct id instance, struct str body)
{
	struct seen_instance *seen = map_get(&checker->instances, id_str(&instance));
	const struct load_box *box = box_of(checker, instance);
	char text[64];

	if (!seen || !box) {
		sim_fail(checker->sim, "a box that has no item says something: %.*s", STR_ARG(body));
		return;
	}
	snprintf(text, sizeof(text), "{\"box\":\"%s\",\"n\":%u}", box->id, ++seen->items);
	if (!str_equal(body, str_of(text)))
		sim_fail(checker->sim, "box %s says %.*s instead of %s", box->id, STR_ARG(body), text);
}

int64_t checker_box_steps(const struct checker *checker)
{
	int64_t steps = 0;

	/* Each item is a step, and it is weighed between any two. */
	for (int i = 0; i < checker->load->box_count; i++)
		steps += 2 * checker->load->boxes[i].parts - 1;
	return steps;
}

void checker_boxes_end(struct checker *checker)
{
	const struct load *load = checker->load;

	for (int i = 0; i < load->event_count; i++)
		if (load->events[i].kind == LOAD_ITEM && !load->events[i].effect)
			sim_fail(checker->sim, "item %s is lost", load->events[i].id);
	for (int i = 0; i < load->box_count; i++) {
		const struct seen_instance *seen = map_get(&checker->instances, id_str(&load->boxes[i].instance));

		if (!seen || seen->items != (uint32_t)load->boxes[i].parts)
			sim_fail(checker->sim, "box %s has %u items of %d", load->boxes[i].id, seen ? seen->items : 0,
				 load->boxes[i].parts);
	}
}
