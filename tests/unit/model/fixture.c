/* SPDX-License-Identifier: Apache-2.0 */
/* Packages for tests of the model. */
#include "tests/unit/model/fixture.h"

#include "tests/support/testing.h"

struct package *fixture_package(struct str conf, struct str channels, struct str diagram)
{
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct package *package = package_new();

	ck_assert(package_add(package, STR("package.conf"), conf, &limits, NULL, &findings));
	ck_assert(package_add(package, STR("channels.conf"), channels, &limits, NULL, &findings));
	ck_assert(package_add(package, STR("bpmn/p.bpmn"), diagram, &limits, NULL, &findings));
	package_finish(package, NULL, &findings);
	ck_assert_uint_eq(findings.errors, 0);
	return package;
}

struct deployment *fixture_deployment(const char *module, const char *version, const char *channels,
				      const char *processes)
{
	struct buf conf = BUF_INIT, diagram = BUF_INIT;
	struct deployment *deployment = NULL;
	struct findings findings = {0};
	struct package *package;

	buf_printf(&conf, "tenant = \"default\"; module = \"%s\"; version = \"%s\";", module,
		   version);
	buf_printf(&diagram, FIXTURE_HEAD "%s" FIXTURE_TAIL, processes);
	package = fixture_package(buf_str(&conf), str_of(channels), buf_str(&diagram));
	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK, "%s",
		      findings.text.data);
	findings_done(&findings);
	package_free(&package);
	buf_done(&conf);
	buf_done(&diagram);
	return deployment;
}
