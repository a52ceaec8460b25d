/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation that cannot fail. Dying of exhausted memory is a tested path (it is a crash like any other), while
 * half-handled exhaustion is not: so a refused small allocation ends the process here. abort() rather than exit(), so
 * that nothing runs on half-built state.
 */
#include "base/alloc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void mem_exhausted(size_t size)
{
	char line[96];
	int len = snprintf(line, sizeof(line), "sutra: out of memory: %zu bytes were refused\n", size);

	/* The log would allocate. */
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		abort();
	abort();
}

void *mem_alloc(size_t size)
{
	void *ptr = malloc(size ? size : 1);

	if (!ptr)
		mem_exhausted(size);
	return ptr;
}

void *mem_zalloc(size_t size)
{
	void *ptr = calloc(1, size ? size : 1);

	if (!ptr)
		mem_exhausted(size);
	return ptr;
}

void *mem_realloc(void *ptr, size_t size)
{
	void *moved = realloc(ptr, size ? size : 1);

	if (!moved)
		mem_exhausted(size);
	return moved;
}

void *mem_array(void *ptr, size_t count, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(count, size, &total))
		mem_exhausted(SIZE_MAX);
	return mem_realloc(ptr, total);
}

char *mem_strdup(const char *text)
{
	size_t len = strlen(text) + 1;

	return memcpy(mem_alloc(len), text, len);
}
