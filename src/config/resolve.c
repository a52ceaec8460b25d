/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References to secrets: env:NAME and secret:KEY, a file in secrets.dir. They are resolved once, when everything has
 * been read, and the value as written is kept beside the secret for `sutra config`. No text here repeats a secret.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "config/private.h"

#define SECRET_BYTES_MAX 65536

/* A file name, not a path. */
static bool key_is_allowed(const char *key)
{
	return *key && !strchr(key, '/') && !strstr(key, "..");
}

static enum result secret_read(const char *dir, const char *key, struct buf *out, struct error *err)
{
	struct buf path = BUF_INIT;
	char bytes[SECRET_BYTES_MAX];
	FILE *file;
	size_t len;
	bool failed;

	if (!key_is_allowed(key))
		return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
				 "secret:%s must name a file in secrets.dir, without / and ..",
				 key);
	buf_printf(&path, "%s/%s", dir, key);
	file = fopen(path.data, "re");
	if (!file) {
		error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
			  "secret:%s: cannot read %s: %s", key, path.data, strerror(errno));
		buf_done(&path);
		return RESULT_REJECT;
	}
	buf_done(&path);
	errno = 0;
	len = fread(bytes, 1, sizeof(bytes), file);
	failed = ferror(file);
	fclose(file);
	if (failed)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
				 "secret:%s: cannot be read: %s", key, strerror(errno));
	if (len == sizeof(bytes))
		return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
				 "secret:%s is larger than %d bytes", key, SECRET_BYTES_MAX - 1);
	if (len && bytes[len - 1] == '\n')
		len--;
	if (len && bytes[len - 1] == '\r')
		len--;
	if (memchr(bytes, '\0', len))
		return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
				 "secret:%s holds a NUL byte", key);
	buf_add(out, bytes, len);
	explicit_bzero(bytes, sizeof(bytes));
	return RESULT_OK;
}

static enum result reference_resolve(char *const *environ_, const char *dir, const char *text,
				     struct buf *out, struct error *err)
{
	size_t before = out->len;
	enum result result = RESULT_OK;

	if (str_starts_with(str_of(text), STR("env:"))) {
		const char *value = environment_get(environ_, text + strlen("env:"));

		if (!value)
			return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING,
					 "%s: there is no such environment variable", text);
		buf_add_text(out, value);
	} else if (str_starts_with(str_of(text), STR("secret:"))) {
		result = secret_read(dir, text + strlen("secret:"), out, err);
	} else {
		buf_add_text(out, text);
		return RESULT_OK;
	}
	/* An empty key or password would open what it is to close. */
	if (result == RESULT_OK && out->len == before)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_SECRET_MISSING, "%s is empty",
				 text);
	return result;
}

enum result config_secret(const char *secrets_dir, const char *reference, struct buf *out,
			  struct error *err)
{
	return reference_resolve(environ, secrets_dir, reference, out, err);
}

static void value_resolve(struct loader *loader, const char *key, struct value *value)
{
	const char *dir = config_text(loader->config, "secrets.dir");
	struct error err = ERROR_INIT;
	struct buf text = BUF_INIT;

	if (!value->set || !is_reference(value->raw))
		return;
	if (reference_resolve(loader->environ_, dir, value->raw, &text, &err) == RESULT_OK)
		value->text = arena_strdup(&loader->config->arena, text.data);
	else
		loader_finding(loader, &value->where, err.code, "%s: %s", key, err.text);
	if (text.data)
		explicit_bzero(text.data, text.len);
	buf_done(&text);
}

/* A credential in a file ends up in repositories and backups; in the environment it is where references would lead. */
static void literal_warn(struct loader *loader, const char *key, const struct value *value)
{
	if (value->set && value->where.origin == ORIGIN_FILE && !is_reference(value->raw))
		loader_finding(loader, &value->where, CODE_CONFIG_SECRET_LITERAL,
			       "%s stands in the file itself; write secret:KEY or env:NAME", key);
}

static void spec_resolve(struct loader *loader, const struct option_spec *spec, struct value *value)
{
	if (spec->type == OPTION_SECRET)
		literal_warn(loader, spec->key, value);
	if (spec->type == OPTION_SECRET || spec->type == OPTION_URL)
		value_resolve(loader, spec->key, value);
}

void references_resolve(struct loader *loader)
{
	struct config *config = loader->config;

	for (size_t i = 0; i < option_count; i++)
		spec_resolve(loader, &option_specs[i], &config->values[i]);
	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		const struct list_spec *list = &list_specs[kind];

		for (size_t i = 0; i < config->lists[kind].count; i++) {
			struct named *named = &config->lists[kind].items[i];

			for (size_t j = 0; j < list->field_count; j++)
				spec_resolve(loader, &list->fields[j], &named->values[j]);
			for (size_t j = 0; j < named->property_count; j++) {
				struct property *property = &named->properties[j];

				if (property_is_secret(property->name))
					literal_warn(loader, property->name, &property->value);
				value_resolve(loader, property->name, &property->value);
			}
		}
	}
}
