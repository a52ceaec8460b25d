/* SPDX-License-Identifier: Apache-2.0 */
/* The report, for people by area, and as JSON in the same order. */
#include "base/buf.h"
#include "cli/doctor.h"

static const char *const severity_names[] = {[SEVERITY_INFO] = "info", [SEVERITY_WARNING] = "warning",
					     [SEVERITY_ERROR] = "error"};

static void json_member(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "\"%s\":", name);
	if (value)
		buf_add_json(out, str_of(value));
	else
		buf_add_text(out, "null");
}

static void print_json(const struct report *report, struct buf *out)
{
	buf_printf(out, "{\"errors\":%u,\"warnings\":%u,\"findings\":[", report->errors, report->warnings);
	for (size_t i = 0; i < report->count; i++) {
		const struct report_entry *entry = &report->entries[i];

		buf_add_text(out, i ? ",{" : "{");
		json_member(out, "area", entry->area);
		buf_add_byte(out, ',');
		json_member(out, "object", entry->object);
		buf_add_byte(out, ',');
		json_member(out, "severity", severity_names[entry->severity]);
		buf_add_byte(out, ',');
		json_member(out, "check", entry->check);
		buf_add_byte(out, ',');
		json_member(out, "code", entry->code == CODE_NONE ? NULL : code_text(entry->code));
		buf_add_byte(out, ',');
		json_member(out, "what", entry->what);
		buf_add_byte(out, ',');
		json_member(out, "remedy", entry->remedy);
		buf_add_byte(out, '}');
	}
	buf_add_text(out, "]}\n");
}

static void print_entry(const struct report_entry *entry, struct buf *out)
{
	buf_printf(out, "  %-8s %s%s%s", severity_names[entry->severity], entry->object ? entry->object : "",
		   entry->object ? ": " : "", entry->what);
	if (entry->code != CODE_NONE)
		buf_printf(out, " [%s]", code_text(entry->code));
	buf_add_byte(out, '\n');
	if (entry->remedy)
		buf_printf(out, "           mend: %s\n", entry->remedy);
}

static void print_text(const struct report *report, struct buf *out)
{
	const char *area = NULL;

	for (size_t i = 0; i < report->count; i++) {
		const struct report_entry *entry = &report->entries[i];

		if (!area || strcmp(area, entry->area) != 0)
			buf_printf(out, "%s\n", entry->area);
		area = entry->area;
		print_entry(entry, out);
	}
	if (report->errors || report->warnings)
		buf_printf(out, "\n%u error%s, %u warning%s\n", report->errors, report->errors == 1 ? "" : "s",
			   report->warnings, report->warnings == 1 ? "" : "s");
	else
		buf_add_text(out, "\nnothing wrong was found\n");
}

void doctor_print(const struct report *report, bool json, FILE *out)
{
	struct buf text = BUF_INIT;

	if (json)
		print_json(report, &text);
	else
		print_text(report, &text);
	fwrite(text.data, 1, text.len, out);
	buf_done(&text);
}
