/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed, reporting access to a libconfig tree. The scan (document_scan.c) has made the text safe and knows where each of
 * its lines came from; here the library parses it, and getters find the document of a setting through the
 * library's own back pointer, so that a setting is all a caller has to pass round.
 */
#include "config/document.h"

#include <libconfig.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "config/document_scan.h"

struct document {
	struct config_t tree;
	struct document_options options;
	struct document_scan scan;
};

static struct document *document_of(const struct config_setting_t *setting)
{
	return container_of(setting->config, struct document, tree);
}

/* The origin of a line of the scanned text; the library may count one past the end. */
static struct document_origin *origin_of(struct document *doc, unsigned line)
{
	size_t index = line ? line - 1 : 0;

	if (index >= doc->scan.origin_count)
		index = doc->scan.origin_count - 1;
	return &doc->scan.origins[index];
}

static void report(struct document *doc, unsigned line, enum code code, const char *text)
{
	struct document_origin *origin = origin_of(doc, line);

	if (origin->refused)
		return;
	if (code_info(code)->severity == SEVERITY_ERROR)
		doc->options.sink->errors++;
	doc->options.sink->add(doc->options.sink, origin->file, line ? origin->line : 0, code,
			       text);
}

static void report_format(const struct config_setting_t *setting, enum code code, const char *fmt,
			  va_list ap) PRINTF_LIKE(3, 0);

static void report_format(const struct config_setting_t *setting, enum code code, const char *fmt,
			  va_list ap)
{
	struct buf text = BUF_INIT;

	buf_vprintf(&text, fmt, ap);
	report(document_of(setting), config_setting_source_line(setting), code, text.data);
	buf_done(&text);
}

void document_finding(const struct config_setting_t *setting, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report_format(setting, document_of(setting)->options.code, fmt, ap);
	va_end(ap);
}

void document_finding_code(const struct config_setting_t *setting, enum code code, const char *fmt,
			   ...)
{
	va_list ap;

	va_start(ap, fmt);
	report_format(setting, code, fmt, ap);
	va_end(ap);
}

/* Parses what was scanned. Takes the scan over in every case. */
static enum result document_build(struct document *doc, struct document **out)
{
	config_init(&doc->tree);
	if (!doc->scan.broken) {
		if (config_read_string(&doc->tree, doc->scan.text.data)) {
			*out = doc;
			return RESULT_OK;
		}
		report(doc, (unsigned)config_error_line(&doc->tree), doc->options.code,
		       config_error_text(&doc->tree));
	}
	document_close(&doc);
	return RESULT_REJECT;
}

static struct document *document_new(const struct document_options *options)
{
	struct document *doc = mem_zalloc(sizeof(*doc));

	doc->options = *options;
	doc->scan.options = &doc->options;
	return doc;
}

enum result document_open(const char *path, const struct document_options *options,
			  struct document **out)
{
	struct document *doc = document_new(options);

	document_scan_file(&doc->scan, path);
	return document_build(doc, out);
}

enum result document_parse(const char *name, struct str text,
			   const struct document_options *options, struct document **out)
{
	struct document *doc = document_new(options);

	document_scan_text(&doc->scan, name, text);
	return document_build(doc, out);
}

void document_close(struct document **doc)
{
	if (!*doc)
		return;
	config_destroy(&(*doc)->tree);
	document_scan_done(&(*doc)->scan);
	free(*doc);
	*doc = NULL;
}

const struct config_setting_t *document_root(const struct document *doc)
{
	return config_root_setting(&doc->tree);
}

unsigned document_line(const struct config_setting_t *setting, const char **file)
{
	struct document_origin *origin = origin_of(document_of(setting),
						   config_setting_source_line(setting));

	if (file)
		*file = origin->file;
	return origin->line;
}

const char *document_key(const struct config_setting_t *setting)
{
	return config_setting_name(setting);
}

const char *document_type(const struct config_setting_t *setting)
{
	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_GROUP:
		return "a group { … }";
	case CONFIG_TYPE_LIST:
		return "a list ( … )";
	case CONFIG_TYPE_ARRAY:
		return "an array [ … ]";
	case CONFIG_TYPE_STRING:
		return "a text";
	case CONFIG_TYPE_BOOL:
		return "a boolean";
	case CONFIG_TYPE_FLOAT:
		return "a floating-point number";
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return "an integer";
	default:
		return "nothing";
	}
}

bool document_is_group(const struct config_setting_t *setting)
{
	return config_setting_is_group(setting);
}

/* Edits between two words, up to `bound`: rows of the usual table over words of at most 63 bytes. */
static size_t word_distance(const char *a, const char *b, size_t bound)
{
	size_t a_len = strlen(a), b_len = strlen(b);
	size_t row[64];

	if (a_len >= ARRAY_LEN(row) || b_len >= ARRAY_LEN(row))
		return bound + 1;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t replace = diagonal + (a[i - 1] != b[j - 1]);
			size_t edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = replace < edit ? replace : edit;
		}
	}
	return row[b_len];
}

const char *document_nearest(const char *word, const char *const *words)
{
	size_t best = strlen(word) / 3 + 1;
	const char *nearest = NULL;

	for (; *words; words++) {
		size_t distance = word_distance(word, *words, best);

		if (distance < best || (distance == best && !nearest)) {
			best = distance;
			nearest = *words;
		}
	}
	return nearest;
}

static bool word_listed(const char *word, const char *const *words)
{
	for (; *words; words++) {
		if (strcmp(word, *words) == 0)
			return true;
	}
	return false;
}

void document_check_keys(const struct config_setting_t *group, const char *const *allowed)
{
	for (size_t i = 0; i < document_count(group); i++) {
		const struct config_setting_t *member = document_at(group, i);
		const char *key = config_setting_name(member);
		const char *nearest;

		if (!key || word_listed(key, allowed))
			continue;
		nearest = document_nearest(key, allowed);
		if (nearest)
			document_finding(member, "unknown key \"%s\"; did you mean \"%s\"?", key,
					 nearest);
		else
			document_finding(member, "unknown key \"%s\"", key);
	}
}

const struct config_setting_t *document_find(const struct config_setting_t *group, const char *key)
{
	return config_setting_get_member(group, key);
}

size_t document_count(const struct config_setting_t *setting)
{
	return (size_t)config_setting_length(setting);
}

const struct config_setting_t *document_at(const struct config_setting_t *setting, size_t index)
{
	return config_setting_get_elem(setting, (unsigned)index);
}

/* Reports that a value has another type than `wanted`. */
static void wrong_type(const struct config_setting_t *setting, const char *wanted)
{
	const char *key = config_setting_name(setting);

	if (key)
		document_finding(setting, "\"%s\" must be %s, not %s", key, wanted,
				 document_type(setting));
	else
		document_finding(setting, "expected %s, not %s", wanted, document_type(setting));
}

static const char *label(const struct config_setting_t *setting)
{
	const char *key = config_setting_name(setting);

	return key ? key : "this value";
}

/* The member, with a finding if it is required and missing. */
static const struct config_setting_t *member(const struct config_setting_t *group, const char *key,
					     bool required)
{
	const struct config_setting_t *setting = document_find(group, key);

	if (!setting && required)
		document_finding(group, "\"%s\" is missing", key);
	return setting;
}

const char *document_as_text(const struct config_setting_t *setting)
{
	const char *text;

	if (config_setting_type(setting) != CONFIG_TYPE_STRING) {
		wrong_type(setting, "a text");
		return NULL;
	}
	text = config_setting_get_string(setting);
	/* An escape can smuggle in what the scan refused. */
	if (!str_is_utf8(str_of(text))) {
		document_finding(setting, "\"%s\" is not UTF-8", label(setting));
		return NULL;
	}
	return text;
}

bool document_as_int(const struct config_setting_t *setting, int64_t min, int64_t max, int64_t *out)
{
	int64_t value;

	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_INT:
		value = config_setting_get_int(setting);
		break;
	case CONFIG_TYPE_INT64:
		value = config_setting_get_int64(setting);
		break;
	default:
		wrong_type(setting, "an integer");
		return false;
	}
	if (value < min || value > max) {
		document_finding(setting, "\"%s\" must be from %lld to %lld, not %lld",
				 label(setting), (long long)min, (long long)max, (long long)value);
		return false;
	}
	*out = value;
	return true;
}

bool document_as_bool(const struct config_setting_t *setting, bool *out)
{
	if (config_setting_type(setting) != CONFIG_TYPE_BOOL) {
		wrong_type(setting, "true or false");
		return false;
	}
	*out = config_setting_get_bool(setting);
	return true;
}

bool document_as_duration_ms(const struct config_setting_t *setting, int64_t min_ms, int64_t max_ms,
			     int64_t *out)
{
	const char *text;
	int64_t value;

	if (config_setting_type(setting) != CONFIG_TYPE_STRING) {
		wrong_type(setting, "a duration such as \"PT30S\"");
		return false;
	}
	text = document_as_text(setting);
	if (!text)
		return false;
	if (!str_to_duration_ms(str_of(text), &value)) {
		document_finding(setting, "\"%s\" must be a duration such as \"PT30S\", not \"%s\"",
				 label(setting), text);
		return false;
	}
	if (value < min_ms || value > max_ms) {
		document_finding(setting,
				 "\"%s\" must be from %lld to %lld milliseconds, not \"%s\"",
				 label(setting), (long long)min_ms, (long long)max_ms, text);
		return false;
	}
	*out = value;
	return true;
}

bool document_text(const struct config_setting_t *group, const char *key, bool required,
		   const char **out)
{
	const struct config_setting_t *setting = member(group, key, required);
	const char *text = setting ? document_as_text(setting) : NULL;

	if (!text)
		return false;
	*out = text;
	return true;
}

bool document_int(const struct config_setting_t *group, const char *key, bool required, int64_t min,
		  int64_t max, int64_t *out)
{
	const struct config_setting_t *setting = member(group, key, required);

	return setting && document_as_int(setting, min, max, out);
}

bool document_bool(const struct config_setting_t *group, const char *key, bool required, bool *out)
{
	const struct config_setting_t *setting = member(group, key, required);

	return setting && document_as_bool(setting, out);
}

bool document_duration_ms(const struct config_setting_t *group, const char *key, bool required,
			  int64_t min_ms, int64_t max_ms, int64_t *out)
{
	const struct config_setting_t *setting = member(group, key, required);

	return setting && document_as_duration_ms(setting, min_ms, max_ms, out);
}

bool document_choice(const struct config_setting_t *group, const char *key, bool required,
		     const char *const *choices, int *out)
{
	const struct config_setting_t *setting = member(group, key, required);
	const char *text = setting ? document_as_text(setting) : NULL;
	struct buf allowed = BUF_INIT;

	if (!text)
		return false;
	for (int i = 0; choices[i]; i++) {
		if (strcmp(text, choices[i]) == 0) {
			buf_done(&allowed);
			*out = i;
			return true;
		}
		buf_printf(&allowed, "%s\"%s\"", i ? ", " : "", choices[i]);
	}
	document_finding(setting, "\"%s\" must be one of %s, not \"%s\"", key, allowed.data, text);
	buf_done(&allowed);
	return false;
}

bool document_group(const struct config_setting_t *group, const char *key, bool required,
		    const struct config_setting_t **out)
{
	const struct config_setting_t *setting = member(group, key, required);

	if (!setting)
		return false;
	if (!config_setting_is_group(setting)) {
		wrong_type(setting, "a group { … }");
		return false;
	}
	*out = setting;
	return true;
}

bool document_groups(const struct config_setting_t *group, const char *key, bool required,
		     const struct config_setting_t **out)
{
	const struct config_setting_t *setting = member(group, key, required);
	bool good = true;

	if (!setting)
		return false;
	if (!config_setting_is_list(setting)) {
		wrong_type(setting, "a list of groups ( { … }, … )");
		return false;
	}
	for (size_t i = 0; i < document_count(setting); i++) {
		if (!config_setting_is_group(document_at(setting, i))) {
			wrong_type(document_at(setting, i), "a group { … }");
			good = false;
		}
	}
	if (good)
		*out = setting;
	return good;
}

bool document_texts(const struct config_setting_t *group, const char *key, bool required,
		    const struct config_setting_t **out)
{
	const struct config_setting_t *setting = member(group, key, required);
	bool good = true;

	if (!setting)
		return false;
	if (!config_setting_is_list(setting) && !config_setting_is_array(setting)) {
		wrong_type(setting, "an array of texts [ \"…\", … ]");
		return false;
	}
	for (size_t i = 0; i < document_count(setting); i++)
		good = document_as_text(document_at(setting, i)) && good;
	if (good)
		*out = setting;
	return good;
}
