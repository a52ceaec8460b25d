/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame is its type, channel, length, payload and an end octet; a publication is a method, a header and frames of body. The
 * library's encoders write the payloads. What it keeps of what was sent is only when, for its heartbeats: it now sends one
 * more often than it must, which is harmless, and between two flushes, so never inside a frame.
 *
 * A frame is only in the buffer when it is whole: one that cannot be encoded leaves nothing behind.
 */
#include "transports/amqp/sender.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

/* Past this the buffer is sent at once: as much as a socket takes in one go. */
#define FLUSH_BYTES (128 << 10)
/* A buffer that a large message has blown up is not kept. */
#define KEEP_BYTES (1 << 20)
#define FRAME_HEAD 7
#define FRAME_END "\xce"
#define CLASS_BASIC 60

void sender_init(struct sender *sender, amqp_connection_state_t conn, bool is_tls)
{
	*sender = (struct sender){.conn = conn, .is_tls = is_tls, .out = BUF_INIT};
}

void sender_done(struct sender *sender)
{
	buf_done(&sender->out);
}

bool sender_has_frames(const struct sender *sender)
{
	return sender->out.len > 0;
}

static int send_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0) {
			bytes += sent;
			len -= (size_t)sent;
		} else if (errno == EAGAIN) {
			struct pollfd writable = {fd, POLLOUT, 0};

			poll(&writable, 1, -1);
		} else if (errno != EINTR) {
			return AMQP_STATUS_SOCKET_ERROR;
		}
	}
	return AMQP_STATUS_OK;
}

int sender_flush(struct sender *sender)
{
	int status = send_all(amqp_get_sockfd(sender->conn), sender->out.data, sender->out.len);

	if (sender->out.cap > KEEP_BYTES)
		buf_done(&sender->out);
	buf_reset(&sender->out);
	return status;
}

/* Room for a frame of the largest size; its payload begins at the address returned. */
static amqp_bytes_t frame_begin(struct sender *sender, uint8_t type, uint16_t channel)
{
	size_t most = (size_t)amqp_get_frame_max(sender->conn);

	buf_add_byte(&sender->out, (char)type);
	buf_add_be16(&sender->out, channel);
	buf_add_be32(&sender->out, 0);
	return (amqp_bytes_t){most - FRAME_HEAD - 1, buf_reserve(&sender->out, most)};
}

/* The payload has `len` bytes, which stand where frame_begin said. */
static void frame_end(struct sender *sender, size_t len)
{
	char *at = sender->out.data + sender->out.len - sizeof(uint32_t);

	for (int i = 0; i < 4; i++)
		at[i] = (char)(len >> (24 - 8 * i));
	sender->out.len += len;
	buf_add(&sender->out, FRAME_END, 1);
}

static int frame_drop(struct sender *sender, int status)
{
	sender->out.len -= FRAME_HEAD;
	return status;
}

static void put_be(char *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = (char)(value >> (8 * (bytes - 1 - i)));
}

static int frame_method(struct sender *sender, uint16_t channel, amqp_method_number_t id, void *method)
{
	amqp_bytes_t room = frame_begin(sender, AMQP_FRAME_METHOD, channel);
	char *at = room.bytes;
	int len;

	put_be(at, id, 4);
	len = amqp_encode_method(id, method, (amqp_bytes_t){room.len - 4, at + 4});
	if (len < 0)
		return frame_drop(sender, len);
	frame_end(sender, (size_t)len + 4);
	return AMQP_STATUS_OK;
}

static int frame_header(struct sender *sender, uint16_t channel, amqp_basic_properties_t *properties, size_t body_len)
{
	amqp_bytes_t room = frame_begin(sender, AMQP_FRAME_HEADER, channel);
	char *at = room.bytes;
	int len;

	put_be(at, CLASS_BASIC, 2);
	put_be(at + 2, 0, 2);
	put_be(at + 4, body_len, 8);
	len = amqp_encode_properties(CLASS_BASIC, properties, (amqp_bytes_t){room.len - 12, at + 12});
	if (len < 0)
		return frame_drop(sender, len);
	frame_end(sender, (size_t)len + 12);
	return AMQP_STATUS_OK;
}

static int flush_if_large(struct sender *sender)
{
	return sender->out.len >= FLUSH_BYTES ? sender_flush(sender) : AMQP_STATUS_OK;
}

int sender_method(struct sender *sender, uint16_t channel, amqp_method_number_t id, void *method)
{
	int status;

	if (sender->is_tls)
		return amqp_send_method(sender->conn, channel, id, method);
	status = frame_method(sender, channel, id, method);
	return status == AMQP_STATUS_OK ? flush_if_large(sender) : status;
}

static int frames_body(struct sender *sender, uint16_t channel, struct str body)
{
	size_t most = (size_t)amqp_get_frame_max(sender->conn) - FRAME_HEAD - 1;
	int status = AMQP_STATUS_OK;

	for (size_t at = 0; at < body.len && status == AMQP_STATUS_OK; at += most) {
		size_t len = body.len - at < most ? body.len - at : most;

		memcpy(frame_begin(sender, AMQP_FRAME_BODY, channel).bytes, body.ptr + at, len);
		frame_end(sender, len);
		status = flush_if_large(sender);
	}
	return status;
}

int sender_publish(struct sender *sender, uint16_t channel, struct str exchange, struct str routing_key,
		   amqp_basic_properties_t *properties, struct str body)
{
	amqp_basic_publish_t method = {
		.exchange = rabbit_bytes(exchange), .routing_key = rabbit_bytes(routing_key), .mandatory = 1};
	size_t before = sender->out.len;
	int status;

	if (sender->is_tls)
		return amqp_basic_publish(sender->conn, channel, method.exchange, method.routing_key, 1, 0, properties,
					  rabbit_bytes(body));
	status = frame_method(sender, channel, AMQP_BASIC_PUBLISH_METHOD, &method);
	if (status == AMQP_STATUS_OK)
		status = frame_header(sender, channel, properties, body.len);
	if (status != AMQP_STATUS_OK) {
		sender->out.len = before;
		return status;
	}
	status = frames_body(sender, channel, body);
	return status == AMQP_STATUS_OK ? flush_if_large(sender) : status;
}
