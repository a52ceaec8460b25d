/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of an examination; see report.h. */
#include "base/report.h"

#include "base/alloc.h"

void report_init(struct report *report)
{
	*report = (struct report){.area = ""};
	arena_init(&report->arena);
}

void report_done(struct report *report)
{
	free(report->entries);
	arena_done(&report->arena);
	*report = (struct report){0};
}

void report_area(struct report *report, const char *area)
{
	report->area = arena_strdup(&report->arena, area);
}

void report_add(struct report *report, enum severity severity, enum code code, const char *check, const char *object,
		const char *fmt, ...)
{
	struct report_entry *entry;
	va_list ap;

	if (report->count == report->cap) {
		report->cap = report->cap ? 2 * report->cap : 32;
		report->entries = mem_array(report->entries, report->cap, sizeof(*report->entries));
	}
	entry = &report->entries[report->count++];
	*entry = (struct report_entry){
		.area = report->area,
		.object = object ? arena_strdup(&report->arena, object) : NULL,
		.severity = severity,
		.code = code,
		.check = arena_strdup(&report->arena, check),
	};
	va_start(ap, fmt);
	entry->what = arena_vprintf(&report->arena, fmt, ap);
	va_end(ap);
	report->errors += severity == SEVERITY_ERROR;
	report->warnings += severity == SEVERITY_WARNING;
}

void report_remedy(struct report *report, const char *fmt, ...)
{
	va_list ap;

	assert(report->count);
	va_start(ap, fmt);
	report->entries[report->count - 1].remedy = arena_vprintf(&report->arena, fmt, ap);
	va_end(ap);
}

const struct report_entry *report_find(const struct report *report, const char *check, size_t from)
{
	for (size_t i = from; i < report->count; i++)
		if (strcmp(report->entries[i].check, check) == 0)
			return &report->entries[i];
	return NULL;
}
