/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that must not compile, because each has been the cause of an overflow, a race or a surprise too often. The
 * build force-includes this file into every source; the system headers come first, so that only our own uses fail.
 * It also keeps assertions on: they guard our own mistakes and are part of the program.
 */
#ifndef SUTRA_BASE_BANNED_H
#define SUTRA_BASE_BANNED_H

#undef NDEBUG

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BANNED(call) this_call_is_banned_##call

/* Unbounded or silently truncating copies: use buf, arena_printf, snprintf, memcpy. */
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef strcpy
#define strcpy(...) BANNED(strcpy)
#undef stpcpy
#define stpcpy(...) BANNED(stpcpy)
#undef strcat
#define strcat(...) BANNED(strcat)
#undef strncpy
#define strncpy(...) BANNED(strncpy)
#undef strncat
#define strncat(...) BANNED(strncat)
#undef gets
#define gets(...) BANNED(gets)

/* Hidden state shared by all threads. */
#undef strtok
#define strtok(...) BANNED(strtok)
#undef asctime
#define asctime(...) BANNED(asctime)
#undef ctime
#define ctime(...) BANNED(ctime)
#undef gmtime
#define gmtime(...) BANNED(gmtime)
#undef localtime
#define localtime(...) BANNED(localtime)

/* Numbers whose errors cannot be seen: use str_to_int64. */
#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atoll
#define atoll(...) BANNED(atoll)

/* Stack growth by input. */
#undef alloca
#define alloca(...) BANNED(alloca)

#endif
