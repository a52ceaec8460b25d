/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packages for tests of the model, made in memory.
 * Life cycle: results are the caller's. Threads: one. All fail the test on trouble.
 */
#ifndef SUTRA_TESTS_UNIT_MODEL_FIXTURE_H
#define SUTRA_TESTS_UNIT_MODEL_FIXTURE_H

#include "model/package_private.h"

#define FIXTURE_HEAD \
	"<definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\" " \
	"xmlns:q=\"urn:sutra:q:1.0\">\n"
#define FIXTURE_TAIL "</definitions>\n"

/* From whole texts of the three files. */
struct package *fixture_package(struct str conf, struct str channels, struct str diagram);
/* Built from a module's name, a version, the text of channels.conf and what stands inside <definitions>. */
struct deployment *fixture_deployment(const char *module, const char *version, const char *channels,
				      const char *processes);

#endif
