/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench's program beside the brokers: the load, and the references that stand in the engine's place.
 *
 *	brokers load kafka|rabbitmq SECONDS [RATE]	sends orders and counts what comes out, as one line of JSON; RATE in steps a second
 *	brokers relay kafka|rabbitmq			a message out for each that comes in, without a database; until SIGTERM
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/load.h"

int main(int argc, char **argv)
{
	bool is_load = argc >= 4 && strcmp(argv[1], "load") == 0;
	bool is_kafka = argc >= 3 && strcmp(argv[2], "kafka") == 0;
	double rate = is_load && argc == 5 ? strtod(argv[4], NULL) : 0;

	if (is_load)
		return (is_kafka ? load_kafka : load_rabbitmq)(bench_number(argv[3]), rate);
	if (argc == 3 && strcmp(argv[1], "relay") == 0)
		return (is_kafka ? relay_kafka : relay_rabbitmq)();
	fputs("usage: brokers load kafka|rabbitmq SECONDS [RATE] | relay kafka|rabbitmq\n", stderr);
	return 2;
}
