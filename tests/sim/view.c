/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The package that the replicas serve, read and built as production does.
 */
#include "base/alloc.h"
#include "model/package.h"
#include "tests/sim/world.h"
#include "tests/support/testing.h"

static void refused(const char *what, const struct buf *text)
{
	fprintf(stderr, "the simulator's package: %s\n%s\n", what, text->data ? text->data : "");
	exit(2);
}

struct view *world_view_load(void)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct buf reasons = BUF_INIT;
	struct view_member member = {.phase = DEPLOYMENT_ACTIVE};
	struct package *package = NULL;
	struct view *view = NULL;
	char *path = test_source_path("tests/sim/data/orders");

	if (package_read(path, &limits, &package, &findings) != RESULT_OK)
		refused("cannot be read", &findings.text);
	if (package_build(package, &member.deployment, &findings) != RESULT_OK)
		refused("is not right", &findings.text);
	if (view_build(1, &member, 1, &view, &reasons) != RESULT_OK)
		refused("makes no view", &reasons);
	deployment_unref(&member.deployment);
	package_free(&package);
	findings_done(&findings);
	buf_done(&reasons);
	free(path);
	return view;
}
