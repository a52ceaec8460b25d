/* SPDX-License-Identifier: Apache-2.0 */
/* The program: everything else sits in the library, where tests reach it. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

int main(int argc, char **argv)
{
	/* While there is one thread: libraries ask for the time zone from any, and a sanitizer cannot see libc's lock. */
	tzset();
	return cli_main(argc, argv, environ, stdout, stderr);
}
