/* SPDX-License-Identifier: Apache-2.0 */
/* A diagram from any bytes: it becomes a deployment whose processes can be walked, or is refused with a finding. */
#include "model/package_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_process(const struct process *process)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		assert(node->index == i && process_node(process, node->id) == node);
		assert(node->kind == NODE_END ? node->outgoing_count == 0
					      : node->outgoing_count > 0);
		assert(!node_is_wait(node) || (node->source && node->alias_count > 0));
		assert(node->kind != NODE_START || node->source);
		assert(node->kind != NODE_SCRIPT || node->script);
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
