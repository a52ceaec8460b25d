/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra lint` and `sutra package`: what they print, and their exit codes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "tests/support/testing.h"

struct call {
	int exit_code;
	char *out;
	char *err;
};

static struct call call(const char *command, const char *operand, const char *out_dir)
{
	struct call result = {0};
	const char *words[] = {"sutra", command, operand, "--out", out_dir};
	char *argv[6] = {NULL}, *copies[6] = {NULL};
	char *environ_[] = {NULL};
	size_t out_len, err_len;
	FILE *out = open_memstream(&result.out, &out_len);
	FILE *err = open_memstream(&result.err, &err_len);
	int argc = out_dir ? 5 : 3;

	for (int i = 0; i < argc; i++)
		argv[i] = copies[i] = strdup(words[i]);
	result.exit_code = cli_main(argc, argv, environ_, out, err);
	fclose(out);
	fclose(err);
	for (int i = 0; i < argc; i++)
		free(copies[i]);
	return result;
}

static void call_done(struct call *result)
{
	free(result->out);
	free(result->err);
}

static char *join(const char *a, const char *b)
{
	struct buf path = BUF_INIT;

	buf_printf(&path, "%s/%s", a, b);
	return buf_take(&path, NULL);
}

START_TEST(lint_good)
{
	char *path = test_source_path("examples/quickstart/package");
	struct call result = call("lint", path, NULL);

	ck_assert_str_eq(result.out, "");
	ck_assert_ptr_nonnull(strstr(result.err, "quickstart 1.0.0 of tenant default"));
	ck_assert_int_eq(result.exit_code, CLI_OK);
	call_done(&result);
	free(path);
}
END_TEST

START_TEST(lint_bad)
{
	char *dir = test_dir_new();
	struct buf want = BUF_INIT;
	struct call result;

	free(test_file_write(dir, "package.conf",
			     STR("tenant = \"default\"; module = \"m\";\nversion = 1;\n")));
	free(test_file_write(dir, "channels.conf", STR("channels = ( );\n")));
	free(test_file_write(dir, "bpmn/p.bpmn", STR("<html/>")));
	result = call("lint", dir, NULL);
	buf_printf(&want, "%s/package.conf:2: SUTRA.CONFIG.PACKAGE.INVALID: ", dir);
	ck_assert_msg(strstr(result.out, want.data) != NULL, "%s", result.out);
	buf_reset(&want);
	buf_printf(&want, "%s/bpmn/p.bpmn:1: SUTRA.CONFIG.BPMN.INVALID: ", dir);
	ck_assert_msg(strstr(result.out, want.data) != NULL, "%s", result.out);
	ck_assert_int_eq(result.exit_code, CLI_FAILED);
	call_done(&result);

	/* Nothing is written of what does not build. */
	result = call("package", dir, dir);
	ck_assert_str_eq(result.out, "");
	ck_assert_int_eq(result.exit_code, CLI_FAILED);
	call_done(&result);

	result = call("lint", "/nonexistent", NULL);
	ck_assert_str_eq(result.out,
			 "/nonexistent: SUTRA.CONFIG.PACKAGE.INVALID: No such file or directory\n");
	ck_assert_int_eq(result.exit_code, CLI_FAILED);
	call_done(&result);
	buf_done(&want);
	test_dir_free(&dir);
}
END_TEST

START_TEST(package_twice)
{
	char *path = test_source_path("examples/quickstart/package"), *dir = test_dir_new();
	char *made = join(dir, "new"), *file = join(made, "default--quickstart--1.0.0.sutra");
	struct buf want = BUF_INIT;
	struct call first = call("package", path, made), second;
	size_t len, again_len;
	char *bytes, *again;

	buf_printf(&want, "packaged %s (deploymentId dep-", file);
	ck_assert_int_eq(first.exit_code, CLI_OK);
	ck_assert_msg(strncmp(first.out, want.data, want.len) == 0, "%s", first.out);
	ck_assert_str_eq(first.out + want.len + 24, ")\n");
	bytes = test_file_read(file, &len);
	second = call("package", path, made);
	ck_assert_str_eq(second.out, first.out);
	again = test_file_read(file, &again_len);
	ck_assert_str_slice(str_make(again, again_len), str_make(bytes, len));
	call_done(&first);
	call_done(&second);

	/* An archive is linted, and packaged, like a folder. */
	second = call("lint", file, NULL);
	ck_assert_int_eq(second.exit_code, CLI_OK);
	call_done(&second);

	second = call("package", path, "/nonexistent/deep");
	ck_assert_int_eq(second.exit_code, CLI_FAILED);
	ck_assert_ptr_nonnull(strstr(second.err, "/nonexistent/deep"));
	call_done(&second);
	free(bytes);
	free(again);
	free(file);
	free(made);
	buf_done(&want);
	free(path);
	test_dir_free(&dir);
}
END_TEST

static Suite *packages_suite(void)
{
	Suite *suite = suite_create("packages");
	TCase *tcase = tcase_create("packages");

	TEST_ADD_ALL(tcase, lint_good, lint_bad, package_twice);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(packages_suite)
