/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports of this build, in the order in which they are listed to people. A new one is a line here.
 */
#include "transports/local/local.h"
#include "transports/transport.h"
#ifdef HAVE_AMQP
#include "transports/amqp/amqp.h"
#endif
#ifdef HAVE_KAFKA
#include "transports/kafka/kafka.h"
#endif

static const struct transport *const transports[] = {
	&transport_local,
#ifdef HAVE_KAFKA
	&transport_kafka,
#endif
#ifdef HAVE_AMQP
	&transport_amqp,
#endif
};

const struct transport *transport_at(size_t index)
{
	return index < ARRAY_LEN(transports) ? transports[index] : NULL;
}

const struct transport *transport_find(struct str name)
{
	for (size_t i = 0; i < ARRAY_LEN(transports); i++)
		if (str_equal(str_of(transports[i]->name), name))
			return transports[i];
	return NULL;
}
