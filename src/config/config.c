/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One load from beginning to end, and the getters. Every source is read and every rule applied before the verdict, so
 * that an operator sees all that is wrong at once.
 */
#include "config/config.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "config/private.h"

/* Pairs of options that must keep an order. */
static const struct {
	const char *smaller;
	const char *larger;
	bool may_equal;
} order_rules[] = {
	{"instance.sweep-interval", "instance.claim-timeout", false},
	{"lease.poll", "lease.ttl", false},
	{"outbox.retry.base-delay", "outbox.retry.max-delay", true},
	{"refusal.backoff.min", "refusal.backoff.max", true},
};

/* Which fields a connection of a transport may have; the rest would be ignored in silence. */
static const char *const kafka_fields[] = {"transport", "properties", NULL};
static const char *const amqp_fields[] = {
	"transport", "url",      "password",  "management-url",   "ca-file",
	"cert-file", "key-file", "heartbeat", "consumer-timeout", NULL};

void loader_finding(struct loader *loader, const struct where *where, enum code code,
		    const char *fmt, ...)
{
	struct config_findings *findings = loader->findings;
	struct buf text = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (where->setting) {
		/* Through the document, which knows about lines that were refused before. */
		document_finding_code(where->setting, code, "%s", text.data);
		buf_done(&text);
		return;
	}
	if (where->origin == ORIGIN_FILE)
		buf_printf(&findings->text, "%s:%u: ", where->name, where->line);
	else if (where->origin == ORIGIN_ENVIRONMENT)
		buf_printf(&findings->text, "environment: %s: ", where->name);
	else
		buf_add_text(&findings->text, "default: ");
	buf_printf(&findings->text, "%s: %s\n", code_text(code), text.data);
	if (code_info(code)->severity == SEVERITY_ERROR)
		findings->errors++;
	else
		findings->warnings++;
	buf_done(&text);
}

static void sink_add(struct document_sink *sink, const char *file, unsigned line, enum code code,
		     const char *text)
{
	struct loader *loader = container_of(sink, struct loader, sink);
	struct config_findings *findings = loader->findings;

	if (line)
		buf_printf(&findings->text, "%s:%u: %s: %s\n", file, line, code_text(code), text);
	else
		buf_printf(&findings->text, "%s: %s: %s\n", file, code_text(code), text);
	if (code_info(code)->severity == SEVERITY_ERROR)
		findings->errors++;
	else
		findings->warnings++;
}

static void defaults_set(struct loader *loader)
{
	const struct where where = {.origin = ORIGIN_DEFAULT};

	loader->config->values = arena_zalloc(&loader->config->arena,
					      option_count * sizeof(struct value));
	for (size_t i = 0; i < option_count; i++) {
		const struct option_spec *spec = &option_specs[i];

		if (spec->default_text)
			value_set(loader, spec, spec->key, &loader->config->values[i],
				  spec->default_text, &where);
	}
}

static const struct value *value_of(const struct config *config, const char *key,
				    const struct option_spec **spec)
{
	for (size_t i = 0; i < option_count; i++) {
		if (strcmp(option_specs[i].key, key) != 0)
			continue;
		if (spec)
			*spec = &option_specs[i];
		return &config->values[i];
	}
	assert(!"the key is in options.def");
	return NULL;
}

/* The stronger of two origins is the one to blame. */
static void orders_check(struct loader *loader)
{
	for (size_t i = 0; i < ARRAY_LEN(order_rules); i++) {
		const struct value *smaller = value_of(loader->config, order_rules[i].smaller,
						       NULL);
		const struct value *larger = value_of(loader->config, order_rules[i].larger, NULL);
		const struct value *blamed = smaller->where.origin > larger->where.origin ? smaller
											  : larger;

		if (smaller->number < larger->number ||
		    (order_rules[i].may_equal && smaller->number == larger->number))
			continue;
		loader_finding(loader, &blamed->where, CODE_STARTUP_SETTINGS,
			       "%s (%s) must be %s %s (%s)", order_rules[i].smaller, smaller->raw,
			       order_rules[i].may_equal ? "at most" : "below",
			       order_rules[i].larger, larger->raw);
	}
}

static bool field_allowed(const char *const *allowed, const char *key)
{
	for (; *allowed; allowed++) {
		if (strcmp(*allowed, key) == 0)
			return true;
	}
	return false;
}

static void connection_check(struct loader *loader, const struct named *named)
{
	const struct list_spec *list = &list_specs[LIST_CONNECTIONS];
	const struct value *transport = &named->values[list_field(LIST_CONNECTIONS, "transport")];
	const struct value *heartbeat = &named->values[list_field(LIST_CONNECTIONS, "heartbeat")];
	bool amqp = transport->set && strcmp(transport->text, "amqp") == 0;

	if (!transport->set) {
		loader_finding(loader, &named->where, CODE_CONFIG_PROPERTY_INVALID,
			       "connection \"%s\" has no transport", named->name);
		return;
	}
	for (size_t i = 0; i < list->field_count; i++) {
		const struct value *value = &named->values[i];

		if (value->set && value->where.origin != ORIGIN_DEFAULT &&
		    !field_allowed(amqp ? amqp_fields : kafka_fields, list->fields[i].key))
			loader_finding(loader, &value->where, CODE_CONFIG_PROPERTY_INVALID,
				       "connection \"%s\": %s is not for transport %s", named->name,
				       list->fields[i].key, transport->text);
	}
	if (amqp && named->property_count)
		loader_finding(
			loader, &named->properties[0].value.where, CODE_CONFIG_PROPERTY_INVALID,
			"connection \"%s\": properties is not for transport amqp", named->name);
	if (amqp && !named->values[list_field(LIST_CONNECTIONS, "url")].set)
		loader_finding(loader, &named->where, CODE_CONFIG_PROPERTY_INVALID,
			       "connection \"%s\" has no url", named->name);
	if (amqp && heartbeat->number % MS_PER_S)
		loader_finding(loader, &heartbeat->where, CODE_CONFIG_PROPERTY_INVALID,
			       "connection \"%s\": heartbeat must be whole seconds, not %s",
			       named->name, heartbeat->raw);
}

static const char *field_text(const struct named *named, const char *key)
{
	return named->values[list_field(LIST_CONNECTIONS, key)].text;
}

static void connections_build(struct config *config)
{
	const struct named_list *list = &config->lists[LIST_CONNECTIONS];

	config->connections = arena_zalloc(&config->arena,
					   (list->count + 1) * sizeof(*config->connections));
	for (size_t i = 0; i < list->count; i++) {
		const struct named *named = &list->items[i];
		struct config_connection *conn = &config->connections[i];
		const char **names = arena_alloc(&config->arena,
						 (named->property_count + 1) * sizeof(*names));
		const char **values = arena_alloc(&config->arena,
						  (named->property_count + 1) * sizeof(*values));

		for (size_t j = 0; j < named->property_count; j++) {
			names[j] = named->properties[j].name;
			values[j] = named->properties[j].value.text;
		}
		conn->name = named->name;
		conn->property_names = names;
		conn->property_values = values;
		conn->property_count = named->property_count;
		conn->transport = field_text(named, "transport");
		conn->url = field_text(named, "url");
		conn->password = field_text(named, "password");
		conn->management_url = field_text(named, "management-url");
		conn->ca_file = field_text(named, "ca-file");
		conn->cert_file = field_text(named, "cert-file");
		conn->key_file = field_text(named, "key-file");
		conn->heartbeat_s =
			named->values[list_field(LIST_CONNECTIONS, "heartbeat")].number / MS_PER_S;
		conn->consumer_timeout_ms =
			named->values[list_field(LIST_CONNECTIONS, "consumer-timeout")].number;
	}
}

static int64_t tenant_limit(const struct named *named, const char *key)
{
	const struct value *value = &named->values[list_field(LIST_TENANTS, key)];

	return value->set ? value->number : -1;
}

static void tenants_build(struct config *config)
{
	const struct named_list *list = &config->lists[LIST_TENANTS];

	config->tenants = arena_zalloc(&config->arena,
				       (list->count + 1) * sizeof(*config->tenants));
	for (size_t i = 0; i < list->count; i++) {
		const struct named *named = &list->items[i];

		config->tenants[i].name = named->name;
		config->tenants[i].max_concurrent_instances = tenant_limit(
			named, "max-concurrent-instances");
		config->tenants[i].max_inbound_rate_per_minute = tenant_limit(
			named, "max-inbound-rate-per-minute");
	}
}

/* The file to read, or NULL for none: one that is asked for must be there, the usual places may be empty. */
static const char *path_choose(const char *path, char *const *environ_)
{
	static const char *const usual[] = {"sutra.conf", "/etc/sutra/sutra.conf"};

	if (!path)
		path = environment_get(environ_, "SUTRA_CONFIG");
	if (path && *path)
		return path;
	for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
		if (access(usual[i], F_OK) == 0)
			return usual[i];
	}
	return NULL;
}

static void load_begin(struct loader *loader, char *const *environ_,
		       struct config_findings *findings)
{
	struct config *config = mem_zalloc(sizeof(*config));

	*loader = (struct loader){.sink = {.add = sink_add},
				  .config = config,
				  .findings = findings,
				  .environ_ = environ_};
	arena_init(&config->arena);
	defaults_set(loader);
}

/* Everything after the file. Ends the config if there were errors. */
static enum result load_end(struct loader *loader, unsigned errors_before, struct config **out)
{
	struct config *config = loader->config;

	environment_read(loader);
	references_resolve(loader);
	orders_check(loader);
	for (size_t i = 0; i < config->lists[LIST_CONNECTIONS].count; i++)
		connection_check(loader, &config->lists[LIST_CONNECTIONS].items[i]);
	if (loader->findings->errors != errors_before) {
		config_free(&config);
		return RESULT_REJECT;
	}
	connections_build(config);
	tenants_build(config);
	*out = config;
	return RESULT_OK;
}

enum result config_load(const char *path, char *const *environ_, struct config **out,
			struct config_findings *findings)
{
	unsigned errors_before = findings->errors;
	struct loader loader;

	load_begin(&loader, environ_, findings);
	path = path_choose(path, environ_);
	if (path)
		file_read(&loader, path);
	return load_end(&loader, errors_before, out);
}

enum result config_load_text(const char *name, struct str text, char *const *environ_,
			     struct config **out, struct config_findings *findings)
{
	unsigned errors_before = findings->errors;
	struct loader loader;

	load_begin(&loader, environ_, findings);
	text_read(&loader, name, text);
	return load_end(&loader, errors_before, out);
}

void config_free(struct config **config)
{
	if (!*config)
		return;
	arena_done(&(*config)->arena);
	free(*config);
	*config = NULL;
}

const char *config_text(const struct config *config, const char *key)
{
	const struct option_spec *spec;
	const struct value *value = value_of(config, key, &spec);

	assert(spec->type != OPTION_INT && spec->type != OPTION_BOOL &&
	       spec->type != OPTION_DURATION);
	return value->set ? value->text : NULL;
}

static int64_t number_of(const struct config *config, const char *key, enum option_type type)
{
	const struct option_spec *spec;
	const struct value *value = value_of(config, key, &spec);

	assert(spec->type == type);
	return value->set ? value->number : -1;
}

int64_t config_int(const struct config *config, const char *key)
{
	return number_of(config, key, OPTION_INT);
}

bool config_bool(const struct config *config, const char *key)
{
	return number_of(config, key, OPTION_BOOL) == 1;
}

int64_t config_ms(const struct config *config, const char *key)
{
	return number_of(config, key, OPTION_DURATION);
}

bool config_is_set(const struct config *config, const char *key)
{
	return value_of(config, key, NULL)->set;
}

bool config_is_chosen(const struct config *config, const char *key)
{
	return value_of(config, key, NULL)->where.origin != ORIGIN_DEFAULT;
}

size_t config_connection_count(const struct config *config)
{
	return config->lists[LIST_CONNECTIONS].count;
}

const struct config_connection *config_connection_at(const struct config *config, size_t index)
{
	assert(index < config->lists[LIST_CONNECTIONS].count);
	return &config->connections[index];
}

const struct config_connection *config_connection_find(const struct config *config, struct str name)
{
	const struct named *named = named_find(config, LIST_CONNECTIONS, name);

	return named ? &config->connections[named - config->lists[LIST_CONNECTIONS].items] : NULL;
}

size_t config_tenant_count(const struct config *config)
{
	return config->lists[LIST_TENANTS].count;
}

const struct config_tenant *config_tenant_at(const struct config *config, size_t index)
{
	return &config->tenants[index];
}

const struct config_tenant *config_tenant_find(const struct config *config, struct str name)
{
	const struct named *named = named_find(config, LIST_TENANTS, name);

	return named ? &config->tenants[named - config->lists[LIST_TENANTS].items] : NULL;
}
