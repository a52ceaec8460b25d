/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header tables of rabbitmq-c to header lists and back.
 *
 * In: integers of every width become integers (above the signed 64 bits: text), floats doubles, decimals text, long strings
 * text or, if not UTF-8, bytes, timestamps seconds, tables maps. Out: integers are 64 bits wide, doubles doubles, text a
 * long string, bytes a byte array, nil void.
 *
 * Life cycle: results sit in the arena; the table made by table_write borrows the strings of the list.
 * Threads: pure functions.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_TABLE_H
#define SUTRA_TRANSPORTS_AMQP_TABLE_H

#include "transports/amqp/rabbitmq.h"
#include "value/header.h"

/* Copies everything. What is nested deeper than 32 becomes nil. */
struct header_list table_read(struct arena *arena, const amqp_table_t *table);
/* Of headers with one name the last counts. */
amqp_table_t table_write(struct arena *arena, const struct header_list *headers);

#endif
