/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ISO 8601: durations and times of any bytes. What is taken is in range; a time that was read is written and read back the
 * same, and a duration in milliseconds is read back the same.
 */
#include "base/buf.h"
#include "base/time.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct str text = str_make(bytes, len);
	int64_t value = -77, back;
	char written[TIME_TEXT_SIZE];

	if (str_to_duration_ms(text, &value)) {
		char again[48];

		assert(value >= 0);
		snprintf(again, sizeof(again), "PT%lld.%03lldS", (long long)(value / MS_PER_S),
			 (long long)(value % MS_PER_S));
		assert(str_to_duration_ms(str_of(again), &back) && back == value);
	} else {
		assert(value == -77);
	}
	value = -77;
	if (time_parse(text, &value)) {
		assert(time_parse(str_of(time_format(value, written)), &back));
		assert(back == value);
	} else {
		assert(value == -77);
	}
	return 0;
}
