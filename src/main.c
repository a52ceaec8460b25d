/* SPDX-License-Identifier: Apache-2.0 */
/* The program: everything else sits in the library, where tests reach it. */
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

int main(int argc, char **argv)
{
	return cli_main(argc, argv, environ, stdout, stderr);
}
