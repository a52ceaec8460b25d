/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids. Instances get UUIDs of version 7, so that rows made together lie together in the index; keys of any length are
 * stood for by the head of their SHA-256 as UUIDs of version 8, so that every key column is sixteen bytes.
 */
#include "base/id.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/time.h"

static void put_version(struct id *id, uint8_t version)
{
	id->bytes[6] = (uint8_t)((id->bytes[6] & 0x0f) | version << 4);
	id->bytes[8] = (uint8_t)((id->bytes[8] & 0x3f) | 0x80);
}

static void put_be64(uint8_t *at, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(v >> (56 - 8 * i));
}

struct id id_new(struct loop *loop)
{
	uint64_t ms = (uint64_t)(loop_wall_us(loop) / US_PER_MS);
	struct id id;

	put_be64(id.bytes, ms << 16 | (loop_random(loop) & 0xffff));
	put_be64(id.bytes + 8, loop_random(loop));
	put_version(&id, 7);
	return id;
}

/*
 * A digest context for each thread, begun once: looking the algorithm up by its name and making a context cost four times as
 * much as digesting a short key.
 */
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static pthread_key_t sha256_key;

static void sha256_forget(void *context)
{
	EVP_MD_CTX_free(context);
}

static void sha256_prepare(void)
{
	if (pthread_key_create(&sha256_key, sha256_forget) != 0)
		abort();
}

static EVP_MD_CTX *sha256_context(void)
{
	EVP_MD_CTX *context;

	pthread_once(&sha256_once, sha256_prepare);
	context = pthread_getspecific(sha256_key);
	if (context)
		return context;
	context = EVP_MD_CTX_new();
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
	    pthread_setspecific(sha256_key, context) != 0)
		abort();
	return context;
}

void sha256(struct str bytes, uint8_t out[static 32])
{
	EVP_MD_CTX *context = sha256_context();

	/* Without a name it begins anew with the algorithm that it has. */
	if (EVP_DigestInit_ex(context, NULL, NULL) != 1 || EVP_DigestUpdate(context, bytes.ptr, bytes.len) != 1 ||
	    EVP_DigestFinal_ex(context, out, NULL) != 1)
		abort();
}

static const char hex_digits[] = "0123456789abcdef";

void sha256_hex(struct str bytes, char hex[static 65])
{
	uint8_t digest[32];

	sha256(bytes, digest);
	for (size_t i = 0; i < sizeof(digest); i++) {
		hex[2 * i] = hex_digits[digest[i] >> 4];
		hex[2 * i + 1] = hex_digits[digest[i] & 15];
	}
	hex[64] = '\0';
}

struct id id_digest(const struct str *parts, size_t count)
{
	uint8_t small[512], digest[32];
	size_t total = 0, at = 0;
	uint8_t *joined = small;
	struct buf big = BUF_INIT;
	struct id id;

	for (size_t i = 0; i < count; i++)
		total += 8 + parts[i].len;
	/* Nearly all keys are short; one call over joined bytes is faster than a digest context. */
	if (total > sizeof(small))
		joined = (uint8_t *)buf_reserve(&big, total);
	for (size_t i = 0; i < count; i++) {
		put_be64(joined + at, parts[i].len);
		if (parts[i].len)
			memcpy(joined + at + 8, parts[i].ptr, parts[i].len);
		at += 8 + parts[i].len;
	}
	sha256(str_make(joined, total), digest);
	buf_done(&big);
	memcpy(id.bytes, digest, sizeof(id.bytes));
	put_version(&id, 8);
	return id;
}

/* Whether a dash stands before byte `i` of the canonical text. */
static bool dash_before(size_t i)
{
	return i == 4 || i == 6 || i == 8 || i == 10;
}

char *id_format(struct id id, char text[static ID_TEXT_SIZE])
{
	char *at = text;

	for (size_t i = 0; i < sizeof(id.bytes); i++) {
		if (dash_before(i))
			*at++ = '-';
		*at++ = hex_digits[id.bytes[i] >> 4];
		*at++ = hex_digits[id.bytes[i] & 15];
	}
	*at = '\0';
	return text;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool id_parse(struct str text, struct id *out)
{
	struct id id;
	size_t at = 0;

	if (text.len != ID_TEXT_SIZE - 1)
		return false;
	for (size_t i = 0; i < sizeof(id.bytes); i++) {
		int high, low;

		if (dash_before(i) && text.ptr[at++] != '-')
			return false;
		high = hex_value(text.ptr[at++]);
		low = hex_value(text.ptr[at++]);
		if (high < 0 || low < 0)
			return false;
		id.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*out = id;
	return true;
}

bool id_is_none(struct id id)
{
	return id_equal(id, ID_NONE);
}

bool id_equal(struct id a, struct id b)
{
	return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

int id_compare(struct id a, struct id b)
{
	return memcmp(a.bytes, b.bytes, sizeof(a.bytes));
}
