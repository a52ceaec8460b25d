/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sutra doctor`, in parts: each looks at one side of a deployment and writes what it finds into the report. What a broker or
 * a database must look like is their own modules' to know; here they are asked.
 *
 * Life cycle: doctor_init, doctor_run, doctor_done; the report lives until then. The functions it asks are members, so that
 * tests bring their own.
 * Threads: main; it blocks.
 */
#ifndef SUTRA_CLI_DOCTOR_H
#define SUTRA_CLI_DOCTOR_H

#include <stdio.h>

#include "base/report.h"
#include "config/config.h"
#include "model/deployment.h"
#include "store/executor.h"
#include "transports/transport.h"

struct doctor {
	const struct config *config;
	struct report report;
	const struct transport *(*transport)(struct str name);
	void (*database)(const struct pg_examination *settings, struct report *report);

	/* The packages that could be built, by path. */
	struct arena arena;
	struct deployment **deployments;
	uint32_t deployment_count;
};

/* With the real transports and PostgreSQL. */
void doctor_init(struct doctor *doctor, const struct config *config);
void doctor_done(struct doctor *doctor);
void doctor_run(struct doctor *doctor);

/* doctor_engine.c: settings of the engine, its listener, its secrets. */
void doctor_engine(struct doctor *doctor);
/* doctor_packages.c: reads deployment.dir; fills doctor->deployments. */
void doctor_packages(struct doctor *doctor);
/* doctor_connections.c: the brokers, with the channels of the packages. */
void doctor_connections(struct doctor *doctor);

/* doctor_print.c: errors and warnings each with what mends it; JSON is one compact line. */
void doctor_print(const struct report *report, bool json, FILE *out);

#endif
