/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: the option table, the values read so far, and where each came from.
 *
 * One load: defaults, then the file (file.c), then the environment (environment.c), each writing values by value_set,
 * which is the only validator; then references are resolved (resolve.c) and the public views built (config.c).
 */
#ifndef SUTRA_CONFIG_PRIVATE_H
#define SUTRA_CONFIG_PRIVATE_H

#include "base/arena.h"
#include "base/time.h"
#include "config/config.h"
#include "config/document.h"

enum option_type {
	OPTION_TEXT,
	OPTION_INT,
	OPTION_BOOL,
	OPTION_DURATION,
	OPTION_CHOICE,
	OPTION_ADDRESS,
	OPTION_SECRET,
	OPTION_URL,
	OPTION_PROPERTIES,
};

/* A row of options.def. */
struct option_spec {
	const char *key;
	enum option_type type;
	const char *default_text;
	int64_t min, max;
	const char *allowed;
	const char *help;
};

extern const struct option_spec option_specs[];
extern const size_t option_count;

/* The lists of things that users name. */
enum list_kind { LIST_CONNECTIONS, LIST_TENANTS, LIST_KIND_COUNT };

struct list_spec {
	const char *key;   /* "connections" */
	const char *thing; /* "connection" */
	const struct option_spec *fields;
	size_t field_count;
};

extern const struct list_spec list_specs[LIST_KIND_COUNT];

/* Index of a field; it must exist. */
size_t list_field(enum list_kind kind, const char *key);

#define OPTION_DAY_MS (INT64_C(86400) * MS_PER_S)
/* A bound as it is written: a duration or a number. */
void option_bound_add(struct buf *out, const struct option_spec *spec, int64_t bound);

#define ENV_NAME_SIZE 128
/* "outbox.retry.max-delay" as "OUTBOX_RETRY_MAX_DELAY" behind what stands in `name`, ENV_NAME_SIZE in all. */
void env_name_append(char *name, const char *key);

enum origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENVIRONMENT };

struct where {
	enum origin origin;
	const char *name; /* file or variable */
	unsigned line;
	const struct config_setting_t *setting; /* while the file is being read, else NULL */
};

struct value {
	bool set;
	struct where where;
	const char *raw;  /* as written */
	const char *text; /* references resolved */
	int64_t number;   /* INT, DURATION (ms), BOOL */
};

struct property {
	const char *name;
	struct value value;
};

/* One thing of a list. */
struct named {
	const char *name;
	struct where where;
	struct value *values; /* one for each field */
	struct property *properties;
	size_t property_count;
};

struct named_list {
	struct named *items;
	size_t count;
};

struct config {
	struct arena arena;
	struct value *values; /* one for each row of option_specs */
	struct named_list lists[LIST_KIND_COUNT];
	struct config_connection *connections;
	struct config_tenant *tenants;
};

/* A load in progress. */
struct loader {
	struct document_sink sink; /* of the file's document */
	struct config *config;
	struct config_findings *findings;
	char *const *environ_;
};

/* One line in the findings; the code decides whether it is an error or a warning. */
void loader_finding(struct loader *loader, const struct where *where, enum code code,
		    const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Validates `text` by the row and sets the value, or leaves it as it is with a finding. `key` is for the finding. */
void value_set(struct loader *loader, const struct option_spec *spec, const char *key,
	       struct value *value, const char *text, const struct where *where);
/* "name=value": sets or replaces a property of `named`. */
void property_set(struct loader *loader, struct named *named, const char *pair,
		  const struct where *where);
/* Adds a thing with default values, or finds the one that is there. NULL with a finding if the name is not allowed. */
struct named *named_add(struct loader *loader, enum list_kind kind, struct str name,
			const struct where *where);
struct named *named_find(const struct config *config, enum list_kind kind, struct str name);

void file_read(struct loader *loader, const char *path);
void text_read(struct loader *loader, const char *name, struct str text);
void environment_read(struct loader *loader);
/* The value of `name` in a "NAME=value" array, or NULL. */
const char *environment_get(char *const *environ_, const char *name);
void references_resolve(struct loader *loader);

/* "env:…" or "secret:…"? */
bool is_reference(const char *text);
/* A property whose value is not for the eyes of others. */
bool property_is_secret(const char *name);
/* How a value may be shown: a reference as written, a secret as "***", a URL without its password. */
void value_show(const struct option_spec *spec, const struct value *value, struct buf *out);
void url_show(const char *url, struct buf *out);

#endif
