/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What folders and archives have in common: which entries a package may hold, the manifest, the id that follows from it, and
 * findings.
 *
 * The manifest has a line per entry, in byte order of the paths: SHA-256, size, path, two blanks between. Its own
 * SHA-256 names the deployment, so equal content has an equal id wherever and whenever it was packed.
 */
#include "model/package.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "model/package_private.h"

#define FINDINGS_MAX 1000 /* a file that is all wrong is not described to its end */

void finding_add(struct findings *findings, const char *file, int line, struct str element,
		 enum code code, const char *fmt, ...)
{
	bool warning = code_info(code)->severity != SEVERITY_ERROR;
	size_t start = findings->text.len;
	va_list ap;

	if (warning)
		findings->warnings++;
	else
		findings->errors++;
	if (findings->errors + findings->warnings > FINDINGS_MAX)
		return;
	if (file && line > 0)
		buf_printf(&findings->text, "%s:%d: ", file, line);
	else if (file)
		buf_printf(&findings->text, "%s: ", file);
	if (element.len)
		buf_printf(&findings->text, "[%.*s] ", STR_ARG(element));
	buf_printf(&findings->text, "%s: ", code_text(code));
	va_start(ap, fmt);
	buf_vprintf(&findings->text, fmt, ap);
	va_end(ap);
	/* Names and values come from the package: they must not make lines, nor steer a terminal. */
	for (size_t i = start; i < findings->text.len; i++)
		if ((unsigned char)findings->text.data[i] < 0x20 || findings->text.data[i] == 0x7f)
			findings->text.data[i] = '?';
	buf_add_byte(&findings->text, '\n');
}

void findings_done(struct findings *findings)
{
	buf_done(&findings->text);
	*findings = (struct findings){0};
}

struct package *package_new(void)
{
	struct package *package = mem_zalloc(sizeof(*package));

	arena_init(&package->arena);
	return package;
}

void package_free(struct package **package)
{
	if (!*package)
		return;
	arena_done(&(*package)->arena);
	free(*package);
	*package = NULL;
}

static bool is_plain(struct str path)
{
	for (size_t i = 0; i < path.len; i++) {
		char c = path.ptr[i];

		if (c <= 0x20 || c >= 0x7f || strchr("\\:*?\"<>|", c))
			return false;
	}
	return path.len > 0 && path.len <= PACKAGE_PATH_MAX;
}

/* No empty, `.` or `..` part, no slash in front. */
static bool is_inside(struct str path, uint32_t max_depth)
{
	uint32_t folders = 0;

	for (;;) {
		ptrdiff_t slash = str_find(path, '/');
		struct str part = {path.ptr, slash < 0 ? path.len : (size_t)slash};

		if (part.len == 0 || str_equal(part, STR(".")) || str_equal(part, STR("..")))
			return false;
		if (slash < 0)
			return folders <= max_depth;
		if (++folders > max_depth)
			return false;
		path.ptr += slash + 1;
		path.len -= (size_t)slash + 1;
	}
}

static bool is_allowed(struct str path)
{
	if (str_equal(path, STR("package.conf")) || str_equal(path, STR("channels.conf")))
		return true;
	if (str_starts_with(path, STR("README")) && str_find(path, '/') < 0)
		return true;
	return str_starts_with(path, STR("bpmn/")) && path.len > 10 &&
	       memcmp(path.ptr + path.len - 5, ".bpmn", 5) == 0;
}

bool package_path_check(struct str path, const struct package_limits *limits, const char *where,
			struct findings *findings)
{
	const char *why = NULL;

	if (!is_plain(path))
		why = "a path in a package is made of printable ASCII without blanks and \\ : * ? "
		      "\" < > | "
		      "and has at most 200 bytes";
	else if (!is_inside(path, limits->max_depth))
		why = "the path leads out of the package or is too deep";
	else if (!is_allowed(path))
		why = "a package holds package.conf, channels.conf, bpmn/*.bpmn and README files "
		      "only";
	if (!why)
		return true;
	struct buf shown = BUF_INIT;

	/* Outside bytes go to a terminal only as JSON. */
	buf_add_json(&shown, path);
	finding_add(findings, where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID, "entry %s: %s",
		    shown.data, why);
	buf_done(&shown);
	return false;
}

bool package_add(struct package *package, struct str path, struct str bytes,
		 const struct package_limits *limits, const char *where, struct findings *findings)
{
	uint64_t total = bytes.len;

	for (uint32_t i = 0; i < package->entry_count; i++)
		total += package->entries[i].bytes.len;
	if (package->entry_count >= limits->max_entries || bytes.len > limits->max_entry_bytes ||
	    total > limits->max_total_bytes) {
		finding_add(findings, where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
			    "entry %.*s: over the limits of %u entries, %llu bytes each and %llu "
			    "in total",
			    STR_ARG(path), limits->max_entries,
			    (unsigned long long)limits->max_entry_bytes,
			    (unsigned long long)limits->max_total_bytes);
		return false;
	}
	if (package->entry_count == 0)
		package->entries = arena_alloc(&package->arena,
					       sizeof(package->entries[0]) * limits->max_entries);
	package->entries[package->entry_count++] = (struct package_entry){
		.path = arena_str(&package->arena, path),
		.bytes = arena_str(&package->arena, bytes),
	};
	return true;
}

static int compare_paths(const void *a, const void *b)
{
	const struct package_entry *x = a, *y = b;

	return str_compare(x->path, y->path);
}

void package_manifest_line(const struct package_entry *entry, struct buf *out)
{
	char hex[65];

	sha256_hex(entry->bytes, hex);
	buf_printf(out, "%s  %zu  %.*s\n", hex, entry->bytes.len, STR_ARG(entry->path));
}

static bool has_diagram(const struct package *package)
{
	for (uint32_t i = 0; i < package->entry_count; i++)
		if (str_starts_with(package->entries[i].path, STR("bpmn/")))
			return true;
	return false;
}

const struct package_entry *package_entry_find(const struct package *package, struct str path)
{
	for (uint32_t i = 0; i < package->entry_count; i++)
		if (str_equal(package->entries[i].path, path))
			return &package->entries[i];
	return NULL;
}

void package_finish(struct package *package, const char *where, struct findings *findings)
{
	static const struct str needed[] = {{"package.conf", 12}, {"channels.conf", 13}};
	struct buf manifest = BUF_INIT;
	char hex[65];

	if (package->entry_count)
		qsort(package->entries, package->entry_count, sizeof(package->entries[0]),
		      compare_paths);
	for (uint32_t i = 1; i < package->entry_count; i++)
		if (str_equal(package->entries[i - 1].path, package->entries[i].path))
			finding_add(findings, where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
				    "entry %.*s: stands there twice",
				    STR_ARG(package->entries[i].path));
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!package_entry_find(package, needed[i]))
			finding_add(findings, where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
				    "%.*s is missing", STR_ARG(needed[i]));
	if (!has_diagram(package))
		finding_add(findings, where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
			    "there is no bpmn/*.bpmn");
	for (uint32_t i = 0; i < package->entry_count; i++)
		package_manifest_line(&package->entries[i], &manifest);
	package->manifest = arena_str(&package->arena, buf_str(&manifest));
	buf_done(&manifest);
	sha256_hex(package->manifest, hex);
	memcpy(package->deployment_id, "dep-", 4);
	memcpy(package->deployment_id + 4, hex, DEPLOYMENT_ID_SIZE - 5);
	package->deployment_id[DEPLOYMENT_ID_SIZE - 1] = '\0';
}
