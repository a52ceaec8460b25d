/* SPDX-License-Identifier: Apache-2.0 */
/* Folders and archives: what may be in them, and that the same content is the same bytes. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

static const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
static const char conf[] = "tenant = \"default\"; module = \"m\"; version = \"1\";\n";
static const char channels[] = "channels = ( { name = \"in\"; transport = \"local\"; } );\n";
static const char diagram[] = FIXTURE_HEAD
	"<process id=\"P\"><startEvent id=\"S\"><extensionElements><q:source channel=\"in\"/>"
	"</extensionElements></startEvent><sequenceFlow id=\"f\" sourceRef=\"S\" "
	"targetRef=\"E\"/><endEvent id=\"E\"/></process>" FIXTURE_TAIL;

static void put(const char *dir, const char *name, const char *text)
{
	free(test_file_write(dir, name, str_of(text)));
}

static char *good_folder(void)
{
	char *dir = test_dir_new();

	put(dir, "package.conf", conf);
	put(dir, "channels.conf", channels);
	put(dir, "bpmn/p.bpmn", diagram);
	put(dir, "bpmn/deep/z.bpmn",
	    FIXTURE_HEAD "<process id=\"Z\" isExecutable=\"false\"/>" FIXTURE_TAIL);
	put(dir, "README.md", "read me\n");
	return dir;
}

/* Reads it; the report must hold `text`, or there must be none. */
static void expect(const char *path, const char *text)
{
	struct findings findings = {0};
	struct package *package = NULL;
	enum result result = package_read(path, &limits, &package, &findings);

	ck_assert_msg(text ? findings.text.len && strstr(findings.text.data, text) != NULL
			   : findings.text.len == 0,
		      "wanted %s, have %s", text ? text : "nothing",
		      findings.text.data ? findings.text.data : "nothing");
	ck_assert_int_eq(result, findings.errors ? RESULT_REJECT : RESULT_OK);
	ck_assert_int_eq(package != NULL, result == RESULT_OK);
	package_free(&package);
	findings_done(&findings);
}

static void expect_archive(struct str bytes, const char *text)
{
	struct findings findings = {0};
	struct package *package = NULL;

	ck_assert_int_eq(package_read_archive(bytes, &limits, &package, &findings),
			 text ? RESULT_REJECT : RESULT_OK);
	if (text)
		ck_assert_msg(strstr(findings.text.data, text) != NULL, "wanted %s, have %s", text,
			      findings.text.data);
	package_free(&package);
	findings_done(&findings);
}

static void pack_folder(const char *dir, struct buf *out, char id[static DEPLOYMENT_ID_SIZE])
{
	struct findings findings = {0};
	struct package *package = NULL;

	ck_assert_msg(package_read(dir, &limits, &package, &findings) == RESULT_OK, "%s",
		      findings.text.data);
	package_write_archive(package, out);
	memcpy(id, package->deployment_id, DEPLOYMENT_ID_SIZE);
	package_free(&package);
	findings_done(&findings);
}

START_TEST(folder_good)
{
	char *dir = good_folder();

	expect(dir, NULL);
	test_dir_free(&dir);
}
END_TEST

START_TEST(folder_refusals)
{
	char *dir = good_folder(), *path;

	expect("/nonexistent/x", "No such file");
	put(dir, "notes.txt", "x");
	expect(dir, "entry \"notes.txt\": a package holds");
	path = test_file_write(dir, "notes.txt", STR(""));
	unlink(path);
	free(path);
	put(dir, "bpmn/p.xml", "x");
	expect(dir, "entry \"bpmn/p.xml\": a package holds");
	test_dir_free(&dir);

	dir = good_folder();
	put(dir, "lib/x.lua", "x");
	expect(dir, "entry \"lib\": the only folder in a package is bpmn");
	test_dir_free(&dir);

	dir = good_folder();
	put(dir, "bpmn/a b.bpmn", diagram);
	expect(dir, "entry \"bpmn/a b.bpmn\": a path in a package");
	test_dir_free(&dir);

	dir = test_dir_new();
	expect(dir, "package.conf is missing");
	expect(dir, "channels.conf is missing");
	expect(dir, "there is no bpmn/*.bpmn");
	test_dir_free(&dir);
}
END_TEST

START_TEST(folder_links)
{
	char *dir = good_folder();
	struct buf link = BUF_INIT;

	buf_printf(&link, "%s/bpmn/passwd.bpmn", dir);
	ck_assert_int_eq(symlink("/etc/passwd", link.data), 0);
	expect(dir, "entry \"bpmn/passwd.bpmn\": is a symbolic link");
	ck_assert_int_eq(unlink(link.data), 0);
	ck_assert_int_eq(mkfifo(link.data, 0600), 0);
	expect(dir, "entry \"bpmn/passwd.bpmn\": is no regular file");
	ck_assert_int_eq(unlink(link.data), 0);
	buf_reset(&link);
	buf_printf(&link, "%s/bpmn/up", dir);
	ck_assert_int_eq(symlink("..", link.data), 0);
	expect(dir, "entry \"bpmn/up\": is a symbolic link");
	ck_assert_int_eq(unlink(link.data), 0);
	expect(dir, NULL);
	buf_done(&link);
	test_dir_free(&dir);
}
END_TEST

/* What editors leave is no part of the package, but not without a word. */
START_TEST(folder_leftovers)
{
	char *dir = good_folder();
	char before[DEPLOYMENT_ID_SIZE], after[DEPLOYMENT_ID_SIZE];
	struct buf archive = BUF_INIT;

	pack_folder(dir, &archive, before);
	put(dir, "bpmn/p.bpmn~", "x");
	put(dir, ".git/HEAD", "x");
	expect(dir, "SUTRA.CONFIG.PACKAGE.IGNORED: bpmn/p.bpmn~ is left out");
	expect(dir, "SUTRA.CONFIG.PACKAGE.IGNORED: .git is left out");
	pack_folder(dir, &archive, after);
	ck_assert_str_eq(before, after);
	buf_done(&archive);
	test_dir_free(&dir);
}
END_TEST

START_TEST(folder_limits)
{
	const struct package_limits small[] = {
		{4, 1 << 20, 1 << 20, 8},
		{100, 100, 1 << 20, 8},
		{100, 1 << 20, 300, 8},
		{100, 1 << 20, 1 << 20, 1},
	};
	char *dir = good_folder();

	for (size_t i = 0; i < ARRAY_LEN(small); i++) {
		struct findings findings = {0};
		struct package *package = NULL;

		ck_assert_int_eq(package_read(dir, &small[i], &package, &findings), RESULT_REJECT);
		ck_assert_ptr_null(package);
		findings_done(&findings);
	}
	test_dir_free(&dir);
}
END_TEST

static void touch_all(const char *dir, time_t when)
{
	static const char *const names[] = {"package.conf", "channels.conf", "bpmn/p.bpmn",
					    "README.md"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
		struct buf path = BUF_INIT;

		buf_printf(&path, "%s/%s", dir, names[i]);
		ck_assert_int_eq(utimensat(AT_FDCWD, path.data, times, 0), 0);
		ck_assert_int_eq(chmod(path.data, i % 2 ? 0600 : 0755), 0);
		buf_done(&path);
	}
}

START_TEST(archive_is_deterministic)
{
	char *dir = good_folder(), *other = test_dir_new();
	char id[2][DEPLOYMENT_ID_SIZE];
	struct buf archives[2] = {BUF_INIT, BUF_INIT};

	ck_assert_int_eq(setenv("TZ", "Pacific/Kiritimati", 1), 0);
	tzset();
	pack_folder(dir, &archives[0], id[0]);
	/* Made in another order, at another time, elsewhere, with other modes. */
	put(other, "README.md", "read me\n");
	put(other, "bpmn/deep/z.bpmn",
	    FIXTURE_HEAD "<process id=\"Z\" isExecutable=\"false\"/>" FIXTURE_TAIL);
	put(other, "bpmn/p.bpmn", diagram);
	put(other, "channels.conf", channels);
	put(other, "package.conf", conf);
	touch_all(other, 86400 * 366);
	ck_assert_int_eq(setenv("TZ", "America/St_Johns", 1), 0);
	tzset();
	pack_folder(other, &archives[1], id[1]);
	ck_assert_str_slice(buf_str(&archives[1]), buf_str(&archives[0]));
	ck_assert_str_eq(id[0], id[1]);
	ck_assert_uint_eq(strlen(id[0]), 28);

	put(other, "README.md", "read me!\n");
	buf_reset(&archives[1]);
	pack_folder(other, &archives[1], id[1]);
	ck_assert_str_ne(id[0], id[1]);
	buf_done(&archives[0]);
	buf_done(&archives[1]);
	test_dir_free(&dir);
	test_dir_free(&other);
}
END_TEST

START_TEST(archive_round_trip)
{
	char *dir = good_folder(), *path;
	char id[DEPLOYMENT_ID_SIZE];
	struct buf archive = BUF_INIT, again = BUF_INIT;
	struct findings findings = {0};
	struct package *package = NULL;

	pack_folder(dir, &archive, id);
	path = test_file_write(dir, "../m.sutra", buf_str(&archive));
	ck_assert_int_eq(package_read(path, &limits, &package, &findings), RESULT_OK);
	ck_assert_str_eq(package->deployment_id, id);
	ck_assert_uint_eq(package->entry_count, 5);
	package_write_archive(package, &again);
	ck_assert_str_slice(buf_str(&again), buf_str(&archive));
	package_free(&package);
	unlink(path);
	free(path);
	buf_done(&archive);
	buf_done(&again);
	test_dir_free(&dir);
}
END_TEST

/* The first place where `text` stands in the archive, to be spoilt. */
static char *place(struct buf *archive, const char *text)
{
	char *at = memmem(archive->data, archive->len, text, strlen(text));

	ck_assert_ptr_nonnull(at);
	return at;
}

/* An archive of a package and a manifest that need not belong together. */
static void pack_with(struct package *package, struct str manifest, struct buf *out)
{
	struct str own = package->manifest;

	package->manifest = manifest;
	buf_reset(out);
	package_write_archive(package, out);
	package->manifest = own;
}

START_TEST(archive_refusals)
{
	struct package *package = fixture_package(str_of(conf), str_of(channels), str_of(diagram));
	struct buf archive = BUF_INIT, manifest = BUF_INIT;
	struct str lines;

	package_write_archive(package, &archive);
	expect_archive(buf_str(&archive), NULL);
	expect_archive(STR(""), "no zip archive");
	expect_archive(STR("hello, this is some text and not an archive"), "no zip archive");
	expect_archive((struct str){archive.data, archive.len / 2}, "");

	/* Altered, with a manifest that tells. */
	buf_add_str(&manifest, package->manifest);
	manifest.data[3] = manifest.data[3] == '0' ? '1' : '0';
	pack_with(package, buf_str(&manifest), &archive);
	expect_archive(buf_str(&archive), "altered");

	/* Not listed, listed but missing, out of order, malformed. */
	lines = package->manifest;
	pack_with(package, (struct str){lines.ptr, (size_t)str_find(lines, '\n') + 1}, &archive);
	expect_archive(buf_str(&archive), "entry package.conf: not in the MANIFEST");
	buf_reset(&manifest);
	buf_add_str(&manifest, package->manifest);
	buf_add_text(&manifest, "00  1  bpmn/missing.bpmn\n");
	pack_with(package, buf_str(&manifest), &archive);
	expect_archive(buf_str(&archive), "an entry that it lists is missing");
	pack_with(package, STR("nonsense\n"), &archive);
	expect_archive(buf_str(&archive), "a line is malformed");

	/* Names that lead out, in both records of the entry; the same length keeps the rest of the archive right. */
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "/mpn/p.bpmn" : "../../.bpmn";

		pack_with(package, package->manifest, &archive);
		memcpy(place(&archive, "bpmn/p.bpmnPK"), name, 11);
		memcpy(place(&archive, "bpmn/p.bpmn<defi"), name, 11);
		expect_archive(buf_str(&archive), "the path leads out of the package");
	}
	buf_done(&manifest);
	buf_done(&archive);
	package_free(&package);
}
END_TEST

/* Every single byte changed: refused, or read as what it was; never anything else. */
START_TEST(archive_flipped_bytes)
{
	struct package *package = fixture_package(str_of(conf), str_of(channels), str_of(diagram));
	struct buf archive = BUF_INIT;

	package_write_archive(package, &archive);
	for (size_t i = 0; i < archive.len; i++) {
		struct findings findings = {0};
		struct package *read = NULL;

		archive.data[i] ^= 0x21;
		if (package_read_archive(buf_str(&archive), &limits, &read, &findings) == RESULT_OK)
			ck_assert_str_eq(read->deployment_id, package->deployment_id);
		else
			ck_assert_uint_gt(findings.errors, 0);
		archive.data[i] ^= 0x21;
		package_free(&read);
		findings_done(&findings);
	}
	buf_done(&archive);
	package_free(&package);
}
END_TEST

/* The package that users see first. */
START_TEST(example_is_clean)
{
	char *path = test_source_path("examples/quickstart/package");
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package = NULL;

	ck_assert_msg(package_read(path, &limits, &package, &findings) == RESULT_OK, "%s",
		      findings.text.data);
	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK, "%s",
		      findings.text.data);
	ck_assert_uint_eq(findings.warnings, 0);
	ck_assert_uint_eq(deployment->process_count, 1);
	ck_assert_uint_eq(deployment->channel_count, 4);
	deployment_unref(&deployment);
	package_free(&package);
	findings_done(&findings);
	free(path);
}
END_TEST

#define WAIT_ON(process, type) \
	FIXTURE_HEAD "<process id=\"" process "\"><startEvent id=\"S\"><extensionElements>" \
		     "<q:source channel=\"in\" messageTypeValue=\"start-" type "\"/>" \
		     "<q:alias name=\"a\" expression=\"payload.a\"/></extensionElements></startEvent>" \
		     "<sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"W\"/><receiveTask id=\"W\">" \
		     "<extensionElements><q:source channel=\"in\" messageTypeValue=\"" type "\"/>" \
		     "<q:alias name=\"a\" expression=\"payload.a\"/></extensionElements></receiveTask>" \
		     "<sequenceFlow id=\"g\" sourceRef=\"W\" targetRef=\"E\"/><endEvent id=\"E\"/>" \
		     "</process>" FIXTURE_TAIL

/* Files have their own ids, but a stored wait says only its channel and node. */
START_TEST(one_id_for_waits_of_two_processes)
{
	struct package *package = package_new();
	struct deployment *deployment = NULL;
	struct findings findings = {0};

	ck_assert(package_add(package, STR("package.conf"), str_of(conf), &limits, NULL, &findings));
	ck_assert(package_add(package, STR("channels.conf"), str_of(channels), &limits, NULL,
			      &findings));
	ck_assert(package_add(package, STR("bpmn/a.bpmn"), str_of(WAIT_ON("A", "x")), &limits, NULL,
			      &findings));
	ck_assert(package_add(package, STR("bpmn/b.bpmn"), str_of(WAIT_ON("B", "y")), &limits, NULL,
			      &findings));
	package_finish(package, NULL, &findings);
	ck_assert_uint_eq(findings.errors, 0);
	ck_assert_int_eq(package_build(package, &deployment, &findings), RESULT_REJECT);
	ck_assert_uint_eq(findings.errors, 1);
	ck_assert_ptr_nonnull(strstr(findings.text.data, "the process \"A\" has a wait of this id"));
	package_free(&package);
	findings_done(&findings);
}
END_TEST

static Suite *package_suite(void)
{
	Suite *suite = suite_create("package");
	TCase *tcase = tcase_create("package");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, folder_good, folder_refusals, folder_links, folder_leftovers,
		     folder_limits, archive_is_deterministic, archive_round_trip, archive_refusals,
		     archive_flipped_bytes, example_is_clean, one_id_for_waits_of_two_processes);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(package_suite)
