/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the content of a package to a deployment: package.conf, then channels.conf (its defaults need the tenant), then the
 * diagrams, each checked for itself, then what needs all of them. Nothing stops at the first problem; what has any is no
 * deployment.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "config/document.h"
#include "model/build.h"
#include "model/package_private.h"

struct conf {
	struct document_sink sink;
	struct findings *findings;
};

static void on_finding(struct document_sink *sink, const char *file, unsigned line, enum code code,
		       const char *text)
{
	struct conf *conf = container_of(sink, struct conf, sink);

	finding_add(conf->findings, file, (int)line, STR_NONE, code, "%s", text);
}

static bool is_lower_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool has_double_dash(struct str s)
{
	for (size_t i = 1; i < s.len; i++)
		if (s.ptr[i] == '-' && s.ptr[i - 1] == '-')
			return true;
	return false;
}

/* [a-z0-9][a-z0-9-]{0,62} without "--", which parts the name of an archive. */
static bool is_package_name(struct str s)
{
	if (s.len == 0 || s.len > 63 || !is_lower_or_digit(s.ptr[0]) || has_double_dash(s))
		return false;
	for (size_t i = 1; i < s.len; i++)
		if (!is_lower_or_digit(s.ptr[i]) && s.ptr[i] != '-')
			return false;
	return true;
}

/* [0-9A-Za-z.+-]{1,32} without "--" */
static bool is_version(struct str s)
{
	if (s.len == 0 || s.len > 32 || has_double_dash(s))
		return false;
	for (size_t i = 0; i < s.len; i++)
		if (!is_lower_or_digit(s.ptr[i]) && !(s.ptr[i] >= 'A' && s.ptr[i] <= 'Z') &&
		    !memchr(".+-", s.ptr[i], 3))
			return false;
	return true;
}

static struct str read_name(struct build *build, const struct config_setting_t *root,
			    const char *key, bool (*good)(struct str s), const char *rule)
{
	const char *text = NULL;

	if (!document_text(root, key, true, &text))
		return STR_NONE;
	if (!good(str_of(text)))
		document_finding(document_find(root, key), "%s = \"%s\" is not allowed: %s", key,
				 text, rule);
	return build_str(build, str_of(text));
}

static void read_package_conf(struct build *build, const struct package_entry *entry)
{
	static const char name_rule[] =
		"lower-case letters, digits and single -, a letter or digit first, at most 63";
	struct conf conf = {.sink = {.add = on_finding}, .findings = build->findings};
	const struct document_options options = {
		.sink = &conf.sink,
		.code = CODE_CONFIG_PACKAGE_INVALID,
	};
	struct deployment *deployment = build->deployment;
	struct document *doc = NULL;
	const struct config_setting_t *root, *stores;

	if (document_parse("package.conf", entry->bytes, &options, &doc) != RESULT_OK)
		return;
	root = document_root(doc);
	document_check_keys(
		root, (const char *const[]){"tenant", "module", "version", "data-stores", NULL});
	deployment->tenant = read_name(build, root, "tenant", is_package_name, name_rule);
	deployment->module = read_name(build, root, "module", is_package_name, name_rule);
	deployment->version = read_name(build, root, "version", is_version,
					"letters, digits and . + -, no two - in a row, at most 32");
	stores = document_find(root, "data-stores");
	if (stores)
		document_finding(stores, "data-stores are not supported yet");
	document_close(&doc);
}

static void read_entries(struct build *build, const struct package *package)
{
	const struct package_entry *entry = package_entry_find(package, STR("package.conf"));

	if (entry)
		read_package_conf(build, entry);
	entry = package_entry_find(package, STR("channels.conf"));
	if (entry)
		channel_read(build, "channels.conf", entry->bytes);
	for (uint32_t i = 0; i < package->entry_count; i++) {
		entry = &package->entries[i];
		if (str_starts_with(entry->path, STR("bpmn/")))
			bpmn_read(build, arena_str(build->arena, entry->path).ptr, entry->bytes);
	}
	bpmn_link(build);
	channel_check(build);
}

enum result package_build(const struct package *package, struct deployment **out,
			  struct findings *findings)
{
	struct deployment *deployment = deployment_new();
	struct build build = {
		.deployment = deployment,
		.arena = &deployment->arena,
		.findings = findings,
	};
	unsigned errors = findings->errors;
	struct buf archive = BUF_INIT;

	deployment->id = build_str(&build, str_of(package->deployment_id));
	read_entries(&build, package);
	if (findings->errors != errors) {
		deployment_unref(&deployment);
		return RESULT_REJECT;
	}
	package_write_archive(package, &archive);
	deployment->archive = build_str(&build, buf_str(&archive));
	buf_done(&archive);
	*out = deployment;
	return RESULT_OK;
}
