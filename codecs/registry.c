/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec, in one array. A new one is a folder with its table and a line here. */
#include "codecs/registry.h"

static const struct codec *const codecs[] = {
	&codec_json,
	&codec_msgpack,
	&codec_text,
	&codec_bytes,
};

const struct codec *codec_at(size_t index)
{
	return index < ARRAY_LEN(codecs) ? codecs[index] : NULL;
}

const struct codec *codec_find(struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(codecs); i++)
		if (str_equal(str_of(codecs[i]->name), name))
			return codecs[i];
	return NULL;
}

enum result codec_check_size(struct str bytes, const struct value_limits *limits, struct error *err)
{
	size_t max = limits->max_bytes < UINT32_MAX ? limits->max_bytes : UINT32_MAX;

	if (bytes.len <= max)
		return RESULT_OK;
	return error_set(err, RESULT_REJECT, CODE_INBOUND_PAYLOAD_TOO_LARGE,
			 "the payload of %zu bytes is over the cap of %zu", bytes.len, max);
}
