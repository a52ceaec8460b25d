/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packages of deployment.dir, read as a replica reads them at its start: each by itself, then together. `sutra lint` says
 * all about one; here its findings are counted.
 */
#include <errno.h>

#include "cli/doctor.h"
#include "model/package.h"
#include "roles/activation.h"

/* NULL: it cannot be built. */
static struct deployment *package_examine(struct doctor *doctor, const char *path)
{
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package = NULL;

	if (package_read(path, &limits, &package, &findings) == RESULT_OK &&
	    package_build(package, &deployment, &findings) != RESULT_OK)
		deployment_unref(&deployment);
	if (findings.errors || findings.warnings) {
		report_add(&doctor->report, findings.errors ? SEVERITY_ERROR : SEVERITY_WARNING,
			   findings.errors ? CODE_DEPLOY_FAILED : CODE_CONFIG_CHANNEL_SUSPICIOUS,
			   findings.errors ? "package-broken" : "package-suspicious", path, "%u errors, %u warnings",
			   findings.errors, findings.warnings);
		report_remedy(&doctor->report, "run `sutra lint %s` and correct what it names", path);
	}
	if (deployment)
		report_add(&doctor->report, SEVERITY_INFO, CODE_NONE, "package", path,
			   "%.*s %.*s of tenant %.*s, %u channels, %u processes", STR_ARG(deployment->module),
			   STR_ARG(deployment->version), STR_ARG(deployment->tenant), deployment->channel_count,
			   deployment->process_count);
	package_free(&package);
	findings_done(&findings);
	return deployment;
}

/* True if another one before it has its tenant and module. */
static bool package_conflicts(struct doctor *doctor, const struct deployment *deployment, const char *path)
{
	for (uint32_t i = 0; i < doctor->deployment_count; i++) {
		const struct deployment *other = doctor->deployments[i];

		if (!str_equal(other->tenant, deployment->tenant) || !str_equal(other->module, deployment->module))
			continue;
		report_add(&doctor->report, SEVERITY_ERROR, CODE_DEPLOY_CONFLICT, "package-conflict", path,
			   "module %.*s of tenant %.*s is in the folder twice, in versions %.*s and %.*s: neither is taken",
			   STR_ARG(deployment->module), STR_ARG(deployment->tenant), STR_ARG(other->version),
			   STR_ARG(deployment->version));
		report_remedy(&doctor->report, "remove one of them");
		return true;
	}
	return false;
}

static void packages_together(struct doctor *doctor)
{
	struct view_member *members =
		arena_zalloc(&doctor->arena, (doctor->deployment_count + 1) * sizeof(*members));
	struct buf findings = BUF_INIT;
	struct view *view = NULL;

	for (uint32_t i = 0; i < doctor->deployment_count; i++)
		members[i] = (struct view_member){doctor->deployments[i], DEPLOYMENT_ACTIVE};
	if (view_build(1, members, doctor->deployment_count, &view, &findings) != RESULT_OK) {
		struct str rest = buf_str(&findings);

		while (rest.len) {
			ptrdiff_t end = str_find(rest, '\n');
			size_t line = end < 0 ? rest.len : (size_t)end;

			report_add(&doctor->report, SEVERITY_ERROR, CODE_CONFIG_CHANNEL_CONFLICT, "packages-together", NULL,
				   "%.*s", (int)line, rest.ptr);
			report_remedy(&doctor->report, "change one of the packages; each by itself is right");
			rest.ptr += line + (end >= 0);
			rest.len -= line + (end >= 0);
		}
	}
	view_unref(&view);
	buf_done(&findings);
}

void doctor_packages(struct doctor *doctor)
{
	const char *dir = config_text(doctor->config, "deployment.dir");
	struct str *paths;
	uint32_t count;

	report_area(&doctor->report, "packages");
	if (!activation_list_folder(dir, &doctor->arena, &paths, &count)) {
		report_add(&doctor->report, SEVERITY_ERROR, CODE_STARTUP_SETTINGS, "folder", "deployment.dir", "%s: %s", dir,
			   strerror(errno));
		report_remedy(&doctor->report, "make the folder, or let the user of the engine read it");
		return;
	}
	if (count == 0) {
		report_add(&doctor->report, SEVERITY_WARNING, CODE_STARTUP_SETTINGS_SUSPICIOUS, "folder", "deployment.dir",
			   "%s holds no package: nothing will run", dir);
		report_remedy(&doctor->report, "put folders with a package.conf, or archives *.sutra, into it");
	}
	doctor->deployments = arena_zalloc(&doctor->arena, (count + 1) * sizeof(struct deployment *));
	for (uint32_t i = 0; i < count; i++) {
		struct deployment *deployment = package_examine(doctor, paths[i].ptr);

		if (deployment && !package_conflicts(doctor, deployment, paths[i].ptr))
			doctor->deployments[doctor->deployment_count++] = deployment;
		else
			deployment_unref(&deployment);
	}
	packages_together(doctor);
}
