/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sutra version`: this program and the libraries it runs with. Lua and libconfig cannot be asked at run time; of them the
 * version that was compiled against is shown.
 */
#include <archive.h>
#include <curl/curl.h>
#include <jansson.h>
#include <libconfig.h>
#include <libpq-fe.h>
#include <libxml/xmlversion.h>
#include <libxml/parser.h>
#include <lua.h>
#include <microhttpd.h>
#include <msgpack.h>
#include <openssl/crypto.h>
#include <string.h>
#include <uv.h>
#ifdef HAVE_KAFKA
#include <librdkafka/rdkafka.h>
#endif

#include "cli/commands.h"
#ifdef HAVE_AMQP
#include "transports/amqp/rabbitmq.h"
#endif

struct library {
	const char *name;
	char version[32];
};

static void number_format(char version[static 32], unsigned major, unsigned minor, unsigned patch)
{
	snprintf(version, 32, "%u.%u.%u", major, minor, patch);
}

static size_t libraries_list(struct library libraries[static 16])
{
	struct library *at = libraries;
	int pq = PQlibVersion();
	unsigned xml = (unsigned)strtoul(xmlParserVersion, NULL, 10);

#ifdef HAVE_KAFKA
	at->name = "librdkafka";
	snprintf(at++->version, 32, "%s", rd_kafka_version_str());
#endif
#ifdef HAVE_AMQP
	at->name = "librabbitmq";
	snprintf(at++->version, 32, "%s", amqp_version());
#endif
	at->name = "libpq";
	snprintf(at++->version, 32, "%d.%d", pq / 10000, pq % 10000);
	at->name = "libuv";
	snprintf(at++->version, 32, "%s", uv_version_string());
	at->name = "lua";
	snprintf(at++->version, 32, "%s",
		 LUA_VERSION_MAJOR "." LUA_VERSION_MINOR "." LUA_VERSION_RELEASE);
	at->name = "msgpack-c";
	snprintf(at++->version, 32, "%s", msgpack_version());
	at->name = "jansson";
	snprintf(at++->version, 32, "%s", jansson_version_str());
	at->name = "libconfig";
	number_format(at++->version, LIBCONFIG_VER_MAJOR, LIBCONFIG_VER_MINOR,
		      LIBCONFIG_VER_REVISION);
	at->name = "libmicrohttpd";
	snprintf(at++->version, 32, "%s", MHD_get_version());
	at->name = "libcurl";
	snprintf(at++->version, 32, "%s", curl_version_info(CURLVERSION_NOW)->version);
	at->name = "libarchive";
	number_format(at++->version, (unsigned)archive_version_number() / 1000000,
		      (unsigned)archive_version_number() / 1000 % 1000,
		      (unsigned)archive_version_number() % 1000);
	at->name = "openssl";
	snprintf(at++->version, 32, "%lu.%lu.%lu", OpenSSL_version_num() >> 28,
		 OpenSSL_version_num() >> 20 & 0xff, OpenSSL_version_num() >> 4 & 0xff);
	at->name = "libxml2";
	number_format(at++->version, xml / 10000, xml / 100 % 100, xml % 100);
	return (size_t)(at - libraries);
}

int command_version(struct cli *cli)
{
	struct library libraries[16];
	bool json = false;
	const struct cli_option options[] = {
		{"json", 0, NULL, "Print JSON", .flag = &json},
		{0},
	};
	size_t count;
	int exit_code;

	if (!cli_parse(cli, options, 0, 0, &exit_code))
		return exit_code;
	count = libraries_list(libraries);
	fprintf(cli->out, json ? "{\"version\":\"%s\",\"libraries\":{" : "sutra %s\n",
		PACKAGE_VERSION);
	for (size_t i = 0; i < count; i++) {
		if (json)
			fprintf(cli->out, "%s\"%s\":\"%s\"", i ? "," : "", libraries[i].name,
				libraries[i].version);
		else
			fprintf(cli->out, "  %-14s %s\n", libraries[i].name, libraries[i].version);
	}
	if (json)
		fputs("}}\n", cli->out);
	return CLI_OK;
}
