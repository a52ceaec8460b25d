/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reading of libconfig documents: sutra.conf, channels.conf, package.conf.
 *
 * libconfig alone is too trusting for files that decide where messages go: version 1.5 wraps integers silently, stops
 * at a NUL byte, finds included files relative to the working directory and knows nothing of allowed keys. So a text is
 * scanned before the library sees it (document_scan.c), and values are read only through the getters below,
 * which report what is wrong with file and line, all of it and not just the first, to the sink of the document.
 *
 * Use:
 *
 *	if (document_open(path, &options, &doc) == RESULT_OK) {
 *		const struct config_setting_t *root = document_root(doc);
 *
 *		document_check_keys(root, (const char *const[]){"tenant", "version", NULL});
 *		document_text(root, "tenant", true, &tenant);
 *		document_text(root, "version", true, &version);
 *	}
 *	ok = sink.errors == 0;
 *	document_close(&doc);
 *
 * Life cycle: document_open or document_parse makes one, document_close ends it and every setting and text borrowed
 * from it. The sink must live as long. Threads: one at a time.
 */
#ifndef SUTRA_CONFIG_DOCUMENT_H
#define SUTRA_CONFIG_DOCUMENT_H

#include "base/attr.h"
#include "base/error.h"
#include "base/str.h"

/* The library's setting, used as an opaque handle: a group, a list, an array or a scalar. */
struct config_setting_t;
struct document;

/* Larger files, deeper nesting and longer chains of includes are refused. */
#define DOCUMENT_BYTES_MAX   ((size_t)1 << 20)
#define DOCUMENT_DEPTH_MAX   32
#define DOCUMENT_INCLUDE_MAX 8

/*
 * Where findings go. Embed it in what collects them. `errors` is counted by the document, by the severity of the code;
 * `line` counts from 1, 0 means the file as a whole; `file` and `text` are borrowed for the call.
 */
struct document_sink {
	void (*add)(struct document_sink *sink, const char *file, unsigned line, enum code code,
		    const char *text);
	unsigned errors;
};

struct document_options {
	struct document_sink *sink;
	enum code code;       /* of every finding about this document */
	bool include_allowed; /* @include, relative to the including file; else each is a finding */
};

/*
 * Reads and parses the file at `path`. RESULT_OK: `*out` is set; integers out of range have been reported but do not
 * stop the reading, so look at sink->errors in the end. RESULT_REJECT: reported, `*out` untouched.
 */
enum result document_open(const char *path, const struct document_options *options,
			  struct document **out) MUST_CHECK;
/* The same over a text in memory; `name` is what findings call it (copied). */
enum result document_parse(const char *name, struct str text,
			   const struct document_options *options,
			   struct document **out) MUST_CHECK;
/* Accepts NULL inside; leaves NULL. */
void document_close(struct document **doc);

/* The outermost group. */
const struct config_setting_t *document_root(const struct document *doc);

/* Reports a finding of the document's code at the setting's line, "line: text". */
void document_finding(const struct config_setting_t *setting, const char *fmt, ...)
	PRINTF_LIKE(2, 3);
/* The same with another code. */
void document_finding_code(const struct config_setting_t *setting, enum code code, const char *fmt,
			   ...) PRINTF_LIKE(3, 4);

/* Where a setting stands; `file` (may be NULL) is borrowed from the document. Returns the line. */
unsigned document_line(const struct config_setting_t *setting, const char **file);
/* Its key, or NULL for the root and for elements of lists. */
const char *document_key(const struct config_setting_t *setting);
/* "a text", "an integer", "a group" … for findings. */
const char *document_type(const struct config_setting_t *setting);
bool document_is_group(const struct config_setting_t *setting);

/* Reports every key of `group` that is not in the NULL-terminated list, with the nearest allowed one if there is one. */
void document_check_keys(const struct config_setting_t *group, const char *const *allowed);

/*
 * Getters: the value of `key` in `group`. True: present and right, `*out` set. False: `*out` untouched, so it may hold
 * the default before the call; missing is a finding if `required`, of the wrong type or out of bounds always is one.
 */
bool document_text(const struct config_setting_t *group, const char *key, bool required,
		   const char **out);
/* From `min` to `max`, both allowed. */
bool document_int(const struct config_setting_t *group, const char *key, bool required, int64_t min,
		  int64_t max, int64_t *out);
bool document_bool(const struct config_setting_t *group, const char *key, bool required, bool *out);
/* An ISO-8601 duration text ("PT30S") from `min_ms` to `max_ms`. */
bool document_duration_ms(const struct config_setting_t *group, const char *key, bool required,
			  int64_t min_ms, int64_t max_ms, int64_t *out);
/* One of a NULL-terminated list of texts; `*out` is its index. */
bool document_choice(const struct config_setting_t *group, const char *key, bool required,
		     const char *const *choices, int *out);
/* A group `{ … }`. */
bool document_group(const struct config_setting_t *group, const char *key, bool required,
		    const struct config_setting_t **out);
/* A list of groups `( { … }, … )`; an element that is no group is a finding. */
bool document_groups(const struct config_setting_t *group, const char *key, bool required,
		     const struct config_setting_t **out);
/* A list or array of texts `[ "a", "b" ]`; an element that is no text is a finding. */
bool document_texts(const struct config_setting_t *group, const char *key, bool required,
		    const struct config_setting_t **out);

/* The setting of any type under `key`, or NULL. No finding. */
const struct config_setting_t *document_find(const struct config_setting_t *group, const char *key);
/* Elements of a group, a list or an array, in the order of the file. */
size_t document_count(const struct config_setting_t *setting);
const struct config_setting_t *document_at(const struct config_setting_t *setting, size_t index);

/* Scalars without a key, with the same findings as above; NULL or false after a finding. */
const char *document_as_text(const struct config_setting_t *setting);
bool document_as_int(const struct config_setting_t *setting, int64_t min, int64_t max,
		     int64_t *out);
bool document_as_bool(const struct config_setting_t *setting, bool *out);
bool document_as_duration_ms(const struct config_setting_t *setting, int64_t min_ms, int64_t max_ms,
			     int64_t *out);

/* Of a NULL-terminated list the word nearest to `word`, if it is near enough to be what was meant; else NULL. */
const char *document_nearest(const char *word, const char *const *words);

#endif
