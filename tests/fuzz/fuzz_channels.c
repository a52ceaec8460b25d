/* SPDX-License-Identifier: Apache-2.0 */
/* channels.conf and, behind a NUL, package.conf from any bytes: refused with a finding, or channels that are whole. */
#include "model/package_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* On a syntax error libconfig 1.5 forgets the text its scanner was putting together; its tree is not covered by this. */
const char *__lsan_default_suppressions(void)
{
	return "leak:strbuf_append\nleak:libconfig_yylex\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct str channels = str_make(data, size);
	struct str conf = STR("tenant = \"default\"; module = \"m\"; version = \"1\";");
	struct findings findings = {0};
	struct package *package = package_new();
	struct deployment *deployment = NULL;
	ptrdiff_t end = str_find(channels, '\0');

	if (end >= 0) {
		conf = str_make(data + end + 1, size - (size_t)end - 1);
		channels.len = (size_t)end;
	}
	if (!package_add(package, STR("package.conf"), conf, &limits, NULL, &findings) ||
	    !package_add(package, STR("channels.conf"), channels, &limits, NULL, &findings) ||
	    !package_add(package, STR("bpmn/p.bpmn"),
			 STR("<definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\">"
			     "<process id=\"P\" isExecutable=\"false\"/></definitions>"),
			 &limits, NULL, &findings))
		goto out;
	package_finish(package, NULL, &findings);
	if (package_build(package, &deployment, &findings) == RESULT_OK) {
		assert(deployment->tenant.len && deployment->module.len && deployment->version.len);
		for (uint32_t i = 0; i < deployment->channel_count; i++) {
			const struct channel *channel = deployment->channels[i];

			assert(channel->name.len && channel->bind.len && channel->codec.len);
			assert(channel->max_in_flight >= 1);
			assert(channel_same_settings(channel, channel));
		}
	} else {
		assert(findings.errors > 0 && findings.text.len > 0);
	}
	deployment_unref(&deployment);
out:
	package_free(&package);
	findings_done(&findings);
	return 0;
}
