/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the codecs, for registry.c, and what their readers share. Private to codecs/.
 *
 * Life cycle: constants. Threads: pure functions.
 */
#ifndef SUTRA_CODECS_REGISTRY_H
#define SUTRA_CODECS_REGISTRY_H

#include "codecs/codec.h"

extern const struct codec codec_json;
extern const struct codec codec_msgpack;
extern const struct codec codec_text;
extern const struct codec codec_bytes;

/*
 * RESULT_REJECT with INBOUND_PAYLOAD_TOO_LARGE for more than limits->max_bytes, or more than one value can hold (4 GiB),
 * before anything looks at the bytes.
 */
enum result codec_check_size(struct str bytes, const struct value_limits *limits,
			     struct error *err) MUST_CHECK;

#endif
