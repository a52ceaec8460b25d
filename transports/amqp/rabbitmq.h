/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of rabbitmq-c, wherever its release keeps them: in a folder of their own from 0.12 on. Included by what knows
 * the library and by nothing else.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_RABBITMQ_H
#define SUTRA_TRANSPORTS_AMQP_RABBITMQ_H

#ifdef HAVE_RABBITMQ_C_AMQP_H
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#include "base/str.h"

static inline struct str rabbit_str(amqp_bytes_t bytes)
{
	return str_make(bytes.bytes ? bytes.bytes : "", bytes.len);
}

static inline amqp_bytes_t rabbit_bytes(struct str text)
{
	return (amqp_bytes_t){text.len, (void *)(uintptr_t)text.ptr};
}

#endif
