/* SPDX-License-Identifier: Apache-2.0 */
/* A diagram from any bytes: it becomes a deployment whose processes can be walked, or is refused with a finding. */
#include "model/package_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the engine relies on. */
static void check_node(const struct node *node)
{
	const struct node *start = node->inside.start;
	bool ends = node_is_end(node) || node->kind == NODE_LINK_THROW ||
		    node->kind == NODE_EVENT_SUBPROCESS;

	assert(ends ? node->outgoing_count == 0 : node->outgoing_count > 0);
	assert(!node_is_wait(node) || (node->source && node->alias_count > 0));
	assert(node->kind != NODE_START || node->source ||
	       (node->container ? node->container->inside.start : node->process->inside.start) == node);
	assert(node->kind != NODE_SCRIPT || node->script);
	assert(node->kind != NODE_SUBPROCESS || (start && start->kind == NODE_START));
	assert(node->kind != NODE_EVENT_SUBPROCESS ||
	       (start && (start->kind == NODE_EVENT_START || start->kind == NODE_EVENT_START_TIMER ||
			  start->kind == NODE_EVENT_START_ERROR)));
	assert(!node_is_timer(node) || node->timer);
	assert(node->kind != NODE_START_TIMER ||
	       (node->timer && !node->timer->expression && !node->container));
	assert(!start || start->container == node);
	assert(node->kind != NODE_CALL || (node->called && node->called->inside.start));
	assert(!node_is_boundary(node) || (node->host && node->host->container == node->container));
	assert(node->kind != NODE_LINK_THROW || node->link);
	assert(node->kind != NODE_END_ERROR || node->error_code.ptr);
	if (node->loop)
		assert(node->loop->multi ? !node->loop->collection != !node->loop->cardinality
					 : node->loop->condition || node->loop->maximum);
	for (uint32_t i = 0; i < node->outgoing_count; i++)
		assert(node->outgoing[i]->to->container == node->container);
}

static void check_process(const struct process *process)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		assert(node->index == i && process_node(process, node->id) == node);
		check_node(node);
	}
	for (uint32_t i = 0; i < process->flow_count; i++)
		assert(process->flows[i]->from->process == process &&
		       process->flows[i]->to->process == process);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char channels[] =
		"channels = ( { name = \"in\"; transport = \"kafka\"; bind = \"in\"; }, { name = "
		"\"out\"; "
		"direction = \"outbound\"; transport = \"kafka\"; bind = \"out\"; } );";
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct package *package = package_new();
	struct deployment *deployment = NULL;

	if (!package_add(package, STR("package.conf"),
			 STR("tenant = \"default\"; module = \"m\"; version = \"1\";"), &limits,
			 NULL, &findings) ||
	    !package_add(package, STR("channels.conf"), str_of(channels), &limits, NULL,
			 &findings) ||
	    !package_add(package, STR("bpmn/p.bpmn"), str_make(data, size), &limits, NULL,
			 &findings))
		goto out;
	package_finish(package, NULL, &findings);
	if (package_build(package, &deployment, &findings) == RESULT_OK) {
		assert(findings.errors == 0);
		for (uint32_t i = 0; i < deployment->process_count; i++)
			check_process(deployment->processes[i]);
	} else {
		assert(findings.errors > 0 && findings.text.len > 0);
	}
	deployment_unref(&deployment);
out:
	package_free(&package);
	findings_done(&findings);
	return 0;
}
