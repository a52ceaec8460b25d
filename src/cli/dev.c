/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sutra dev: one replica on embedded defaults, for trying things out. An in-process broker that speaks the Kafka protocol, the
 * in-memory store (unless a datasource.url is configured), an open admin listener (unless there is a key), and the packages named
 * on the command line. What the configuration or the environment says still wins.
 */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "model/package.h"
#include "transports/kafka/mock.h"

#define PACKAGES_MAX 64
#define SETTINGS_MAX 16
#define PARTITIONS   4

struct dev {
	struct cli *cli;
	struct config *said; /* what the configuration says without our defaults */
	char folder[4096]; /* of the packages, as archives; removed at the end */
	struct kafka_mock *mock;
	struct buf topics; /* of the packages' Kafka channels, each once and with its NUL */
	char *settings[SETTINGS_MAX]; /* "NAME=value" */
	size_t setting_count;
	char **environment; /* the process's, and ours where it says nothing */
};

/* Defaults go by way of the environment, which is stronger than the file: so those that the file says are left out. */
static void dev_set(struct dev *dev, const char *name, const char *value)
{
	struct buf text = BUF_INIT;
	size_t len;

	assert(dev->setting_count < SETTINGS_MAX);
	buf_printf(&text, "%s=%s", name, value);
	dev->settings[dev->setting_count++] = buf_take(&text, &len);
}

static void dev_default(struct dev *dev, const char *key, const char *name, const char *value)
{
	if (!config_is_chosen(dev->said, key))
		dev_set(dev, name, value);
}

/* Whether one of our settings takes the place of this variable. */
static bool dev_replaces(const struct dev *dev, const char *entry)
{
	size_t len = strcspn(entry, "=") + 1;

	for (size_t i = 0; i < dev->setting_count; i++)
		if (strncmp(dev->settings[i], entry, len) == 0)
			return true;
	return false;
}

static void dev_build_environment(struct dev *dev)
{
	size_t most = 0, count = 0;

	while (dev->cli->environ_[most])
		most++;
	dev->environment = mem_array(NULL, most + dev->setting_count + 1, sizeof(char *));
	for (size_t i = 0; i < most; i++)
		if (!dev_replaces(dev, dev->cli->environ_[i]))
			dev->environment[count++] = dev->cli->environ_[i];
	memcpy(dev->environment + count, dev->settings, dev->setting_count * sizeof(char *));
	dev->environment[count + dev->setting_count] = NULL;
}

static bool dev_knows_topic(const struct dev *dev, struct str topic)
{
	for (size_t at = 0; at < dev->topics.len; at += strlen(dev->topics.data + at) + 1)
		if (str_equal(str_of(dev->topics.data + at), topic))
			return true;
	return false;
}

static void dev_note_topics(struct dev *dev, const struct deployment *deployment)
{
	for (uint32_t i = 0; i < deployment->channel_count; i++) {
		const struct channel *channel = deployment->channels[i];

		if (!str_equal(channel->transport, STR("kafka")) || dev_knows_topic(dev, channel->bind))
			continue;
		buf_printf(&dev->topics, "%.*s", STR_ARG(channel->bind));
		buf_add_byte(&dev->topics, 0);
	}
}

/* A package becomes an archive in the folder that the replica loads. False: it is broken, and everything wrong was said. */
static bool dev_add_package(struct dev *dev, const char *path)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct deployment *deployment = NULL;
	struct package *package = NULL;
	struct findings findings = {0};
	struct buf archive = BUF_INIT, name = BUF_INIT;
	bool ok = package_read(path, &limits, &package, &findings) == RESULT_OK &&
		  package_build(package, &deployment, &findings) == RESULT_OK;
	FILE *file;

	if (findings.text.len)
		fwrite(findings.text.data, 1, findings.text.len, dev->cli->err);
	if (ok) {
		dev_note_topics(dev, deployment);
		package_write_archive(package, &archive);
		buf_printf(&name, "%s/%.*s--%.*s--%.*s.sutra", dev->folder, STR_ARG(deployment->tenant),
			   STR_ARG(deployment->module), STR_ARG(deployment->version));
		file = fopen(name.data, "wb");
		ok = file && fwrite(archive.data, 1, archive.len, file) == archive.len;
		if ((file && fclose(file) != 0) || !ok) {
			fprintf(dev->cli->err, "sutra: cannot write %s: %s\n", name.data, strerror(errno));
			ok = false;
		}
	}
	deployment_unref(&deployment);
	package_free(&package);
	findings_done(&findings);
	buf_done(&archive);
	buf_done(&name);
	return ok;
}

static bool dev_prepare_packages(struct dev *dev)
{
	const char *parent = run_environment(dev->cli, "TMPDIR");

	if (!parent || !*parent)
		parent = "/tmp";
	/* A path that was cut short does not end in XXXXXX, and mkdtemp refuses it. */
	snprintf(dev->folder, sizeof(dev->folder), "%s/sutra-dev-XXXXXX", parent);
	if (!mkdtemp(dev->folder)) {
		fprintf(dev->cli->err, "sutra: cannot make a folder in %s: %s\n", parent, strerror(errno));
		dev->folder[0] = '\0';
		return false;
	}
	for (int i = 0; i < dev->cli->argc; i++)
		if (!dev_add_package(dev, dev->cli->argv[i]))
			return false;
	/* Packages that are named here are meant, whatever folder the configuration has. */
	if (dev->cli->argc)
		dev_set(dev, "SUTRA_DEPLOYMENT_DIR", dev->folder);
	else
		dev_default(dev, "deployment.dir", "SUTRA_DEPLOYMENT_DIR", dev->folder);
	return true;
}

/* A new consumer group would else find some topics missing and join once more for each that appears. */
static bool dev_create_topics(struct dev *dev)
{
	struct error err = ERROR_INIT;

	for (size_t at = 0; at < dev->topics.len; at += strlen(dev->topics.data + at) + 1) {
		if (kafka_mock_topic(dev->mock, dev->topics.data + at, PARTITIONS, &err) != RESULT_OK) {
			fprintf(dev->cli->err, "sutra: %s\n", err.text);
			return false;
		}
	}
	return true;
}

static bool dev_prepare_broker(struct dev *dev, const char *kafka_file)
{
	struct buf text = BUF_INIT;
	struct error err = ERROR_INIT;
	bool ok = true;

	if (config_connection_count(dev->said))
		return true;
	if (kafka_mock_start(&dev->mock, &err) != RESULT_OK) {
		fprintf(dev->cli->err, "sutra: %s\n", err.text);
		return false;
	}
	if (!dev_create_topics(dev))
		return false;
	buf_printf(&text, "bootstrap.servers=%s;session.timeout.ms=6000", kafka_mock_bootstrap(dev->mock));
	dev_set(dev, "SUTRA_CONNECTIONS", "kafka");
	dev_set(dev, "SUTRA_CONNECTIONS_KAFKA_TRANSPORT", "kafka");
	dev_set(dev, "SUTRA_CONNECTIONS_KAFKA_PROPERTIES", text.data);
	fprintf(dev->cli->out, "Kafka protocol on %s (in memory)\n", kafka_mock_bootstrap(dev->mock));
	if (kafka_file) {
		buf_reset(&text);
		buf_printf(&text, "%s\n", kafka_mock_bootstrap(dev->mock));
		ok = run_write_file(dev->cli, kafka_file, text.data);
	}
	buf_done(&text);
	return ok;
}

/* The second reading, with our defaults. What it warns of was said by the first. */
static struct config *dev_load(struct dev *dev, const char *file)
{
	struct config_findings findings = {.text = BUF_INIT};
	struct config *config = NULL;

	if (config_load(file, dev->cli->environ_, &config, &findings) != RESULT_OK)
		fwrite(findings.text.data, 1, findings.text.len, dev->cli->err);
	buf_done(&findings.text);
	return config;
}

static int dev_run(struct dev *dev, const char *config_file, const char *port_file, const char *kafka_file)
{
	struct config *config;
	int exit_code;

	dev->said = cli_config_load(dev->cli, config_file);
	if (!dev->said || !dev_prepare_packages(dev) || !dev_prepare_broker(dev, kafka_file))
		return CLI_FAILED;
	dev_default(dev, "admin.listen", "SUTRA_ADMIN_LISTEN", "127.0.0.1:0");
	if (!config_is_chosen(dev->said, "admin.auth.key-ref"))
		dev_default(dev, "admin.dev-no-auth", "SUTRA_ADMIN_DEV_NO_AUTH", "true");
	dev_default(dev, "log.format", "SUTRA_LOG_FORMAT", "text");
	dev_build_environment(dev);
	dev->cli->environ_ = dev->environment;
	config = dev_load(dev, config_file);
	if (!config)
		return CLI_FAILED;
	fflush(dev->cli->out);
	exit_code = run_replica(dev->cli, config, port_file);
	config_free(&config);
	return exit_code;
}

static int dev_remove(const char *path, const struct stat *status UNUSED, int type UNUSED, struct FTW *ftw UNUSED)
{
	return remove(path);
}

static void dev_done(struct dev *dev)
{
	if (dev->folder[0])
		nftw(dev->folder, dev_remove, 8, FTW_DEPTH | FTW_PHYS);
	kafka_mock_stop(&dev->mock);
	config_free(&dev->said);
	buf_done(&dev->topics);
	for (size_t i = 0; i < dev->setting_count; i++)
		free(dev->settings[i]);
	free(dev->environment);
}

int command_dev(struct cli *cli)
{
	const char *file = NULL, *port_file = NULL, *kafka_file = NULL;
	const struct cli_option options[] = {
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &file},
		{"port-file", 0, "FILE", "Write the port of the admin listener to FILE", .text = &port_file},
		{"kafka-file", 0, "FILE", "Write the address of the embedded broker to FILE", .text = &kafka_file},
		{0},
	};
	struct dev dev = {.cli = cli};
	char *const *environment = cli->environ_;
	int exit_code;

	if (!cli_parse(cli, options, 0, PACKAGES_MAX, &exit_code))
		return exit_code;
	run_block_signals();
	exit_code = dev_run(&dev, file, port_file, kafka_file);
	cli->environ_ = environment;
	dev_done(&dev);
	return exit_code;
}
