/* SPDX-License-Identifier: Apache-2.0 */
/* An archive from any bytes: what is read writes an archive that is read as the same. */
#include "model/package_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct package_limits limits = {50, 64 * 1024, 256 * 1024, 8};
	struct findings findings = {0};
	struct package *package = NULL, *again = NULL;
	struct buf archive = BUF_INIT;

	if (package_read_archive(str_make(data, size), &limits, &package, &findings) != RESULT_OK) {
		assert(findings.errors > 0 && !package);
	} else {
		package_write_archive(package, &archive);
		enum result result = package_read_archive(buf_str(&archive), &limits, &again,
							  &findings);

		assert(result == RESULT_OK);
		assert(strcmp(package->deployment_id, again->deployment_id) == 0);
	}
	buf_done(&archive);
	package_free(&package);
	package_free(&again);
	findings_done(&findings);
	return 0;
}
