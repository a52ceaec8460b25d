/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client seam over rabbitmq-c, 0.11 and later. The library is used as a codec with a socket: frames are encoded by
 * it and sent together when the loop's turn ends (sender.c), and one loop reads the frames of all channels with
 * amqp_simple_wait_frame_noblock until there are none. Its helpers that wait for the frames of one channel are not used: they drop or hoard those of the others.
 *
 * Connecting and logging in are calls that wait. They run on the loop of the connection, since there is nothing else for it to
 * do without one (what was delivered before is settled too late anyway), and are bounded by short timeouts; only
 * the resolver of the system has its own. A loop for each connection and direction keeps everything else out of this.
 *
 * Sending waits as long as the peer does not read, without end; the watchdog ends that. A connection that blocks so for the
 * broker's memory alarm was warned before by connection.blocked, and its publisher has stopped.
 *
 * A heartbeat is sent and missed only inside the waits for frames, so a timer makes one three times an interval. It does not
 * poll with a timeout of zero, for which the library does not look whether the peer's heartbeats have come.
 */
#include "transports/amqp/client.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "base/time.h"
#include "transports/amqp/connect.h"
#include "transports/amqp/frames.h"
#include "transports/amqp/sender.h"
#include "transports/amqp/table.h"
#include "transports/amqp/watchdog.h"

#define CONNECT_S 3
#define LOGIN_S 4
#define RPC_S 2
#define CHANNEL_MAX 2047
#define FRAME_MAX 131072
#define CONSUMER_TAG "sutra"

struct rabbit_handle {
	struct loop *loop;
	void (*ready)(void *user);
	void *user;
	amqp_connection_state_t conn;
	struct frames frames;
	struct sender sender;
	struct arena send; /* of one publication */
	struct watchdog watchdog;
	uv_poll_t poller;
	struct loop_timer heartbeat;
	struct task wake, flush;
	int64_t heartbeat_us;
	bool lost, lost_told, wake_posted, flush_posted, closed;
	bool tick; /* the next poll also looks for missing heartbeats */
	char lost_text[256];
	char product[96];
};

/* --- losing it --- */

static void handle_free_check(struct rabbit_handle *handle)
{
	/* The poller's close and what was posted still come by. */
	if (handle->closed && !handle->wake_posted && !handle->flush_posted && !handle->poller.data)
		free(handle);
}

static void wake_run(struct task *task)
{
	struct rabbit_handle *handle = container_of(task, struct rabbit_handle, wake);

	handle->wake_posted = false;
	if (handle->closed)
		handle_free_check(handle);
	else
		handle->ready(handle->user);
}

static void wake_post(struct rabbit_handle *handle)
{
	if (handle->wake_posted)
		return;
	handle->wake_posted = true;
	handle->wake.run = wake_run;
	loop_post(handle->loop, &handle->wake);
}

static void handle_lose(struct rabbit_handle *handle, const char *what, const char *why)
{
	if (handle->lost)
		return;
	handle->lost = true;
	if (watchdog_has_fired(&handle->watchdog))
		snprintf(handle->lost_text, sizeof(handle->lost_text), "%s: the broker does not read", what);
	else
		snprintf(handle->lost_text, sizeof(handle->lost_text), "%s%s%s", what, *why ? ": " : "", why);
	uv_poll_stop(&handle->poller);
	loop_timer_stop(&handle->heartbeat);
	wake_post(handle);
}

/* --- sending --- */

static void flush_now(struct rabbit_handle *handle)
{
	int status;

	if (handle->lost || !sender_has_frames(&handle->sender))
		return;
	watchdog_begin(&handle->watchdog);
	status = sender_flush(&handle->sender);
	watchdog_end(&handle->watchdog);
	if (status != AMQP_STATUS_OK)
		handle_lose(handle, "sending failed", amqp_error_string2(status));
}

static void flush_run(struct task *task)
{
	struct rabbit_handle *handle = container_of(task, struct rabbit_handle, flush);

	handle->flush_posted = false;
	if (handle->closed)
		handle_free_check(handle);
	else
		flush_now(handle);
}

/* Behind what is posted already, which may have more to send. */
static void flush_later(struct rabbit_handle *handle)
{
	if (handle->flush_posted || !sender_has_frames(&handle->sender))
		return;
	handle->flush_posted = true;
	handle->flush.run = flush_run;
	loop_post(handle->loop, &handle->flush);
}

static void send_method(struct rabbit_handle *handle, uint16_t channel, amqp_method_number_t id, void *method)
{
	int status;

	if (handle->lost)
		return;
	watchdog_begin(&handle->watchdog);
	status = sender_method(&handle->sender, channel, id, method);
	watchdog_end(&handle->watchdog);
	if (status != AMQP_STATUS_OK)
		handle_lose(handle, "sending failed", amqp_error_string2(status));
	flush_later(handle);
}

static void rabbit_channel_open(struct rabbit_handle *handle, uint16_t channel)
{
	amqp_channel_open_t method = {.out_of_band = amqp_empty_bytes};

	send_method(handle, channel, AMQP_CHANNEL_OPEN_METHOD, &method);
}

static void rabbit_channel_close(struct rabbit_handle *handle, uint16_t channel)
{
	amqp_channel_close_t method = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = rabbit_bytes(STR("done"))};

	send_method(handle, channel, AMQP_CHANNEL_CLOSE_METHOD, &method);
}

static void rabbit_qos(struct rabbit_handle *handle, uint16_t channel, uint16_t count)
{
	amqp_basic_qos_t method = {.prefetch_count = count};

	send_method(handle, channel, AMQP_BASIC_QOS_METHOD, &method);
}

static void rabbit_consume(struct rabbit_handle *handle, uint16_t channel, const char *queue)
{
	amqp_basic_consume_t method = {.queue = rabbit_bytes(str_of(queue)),
				       .consumer_tag = rabbit_bytes(STR(CONSUMER_TAG)),
				       .arguments = amqp_empty_table};

	send_method(handle, channel, AMQP_BASIC_CONSUME_METHOD, &method);
}

static void rabbit_cancel(struct rabbit_handle *handle, uint16_t channel)
{
	amqp_basic_cancel_t method = {.consumer_tag = rabbit_bytes(STR(CONSUMER_TAG))};

	send_method(handle, channel, AMQP_BASIC_CANCEL_METHOD, &method);
}

static void rabbit_ack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag, bool multiple)
{
	amqp_basic_ack_t method = {.delivery_tag = tag, .multiple = multiple};

	send_method(handle, channel, AMQP_BASIC_ACK_METHOD, &method);
}

static void rabbit_nack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag)
{
	amqp_basic_nack_t method = {.delivery_tag = tag, .multiple = 0, .requeue = 1};

	send_method(handle, channel, AMQP_BASIC_NACK_METHOD, &method);
}

static void rabbit_nack_all(struct rabbit_handle *handle, uint16_t channel)
{
	amqp_basic_nack_t method = {.delivery_tag = 0, .multiple = 1, .requeue = 1};

	send_method(handle, channel, AMQP_BASIC_NACK_METHOD, &method);
}

static void rabbit_confirm(struct rabbit_handle *handle, uint16_t channel)
{
	amqp_confirm_select_t method = {.nowait = 0};

	send_method(handle, channel, AMQP_CONFIRM_SELECT_METHOD, &method);
}

static void property_set(amqp_basic_properties_t *to, amqp_flags_t flag, amqp_bytes_t *field, struct str value)
{
	if (!value.ptr)
		return;
	to->_flags |= flag;
	*field = rabbit_bytes(value);
}

static void rabbit_publish(struct rabbit_handle *handle, uint16_t channel, struct str exchange,
			   struct str routing_key, const struct rabbit_properties *from, struct str body)
{
	amqp_basic_properties_t to = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
				      .delivery_mode = AMQP_DELIVERY_PERSISTENT};
	int status;

	if (handle->lost)
		return;
	arena_reset(&handle->send);
	property_set(&to, AMQP_BASIC_CONTENT_TYPE_FLAG, &to.content_type, from->content_type);
	property_set(&to, AMQP_BASIC_CORRELATION_ID_FLAG, &to.correlation_id, from->correlation_id);
	property_set(&to, AMQP_BASIC_REPLY_TO_FLAG, &to.reply_to, from->reply_to);
	property_set(&to, AMQP_BASIC_MESSAGE_ID_FLAG, &to.message_id, from->message_id);
	property_set(&to, AMQP_BASIC_TYPE_FLAG, &to.type, from->type);
	if (from->timestamp_s) {
		to._flags |= AMQP_BASIC_TIMESTAMP_FLAG;
		to.timestamp = (uint64_t)from->timestamp_s;
	}
	if (from->headers.count) {
		to._flags |= AMQP_BASIC_HEADERS_FLAG;
		to.headers = table_write(&handle->send, &from->headers);
	}
	watchdog_begin(&handle->watchdog);
	status = sender_publish(&handle->sender, channel, exchange, routing_key, &to, body);
	watchdog_end(&handle->watchdog);
	if (status != AMQP_STATUS_OK)
		handle_lose(handle, "publishing failed", amqp_error_string2(status));
	flush_later(handle);
}

/* --- reading --- */

/* Reads one frame; false if there is none. */
static bool frame_read(struct rabbit_handle *handle, amqp_frame_t *frame)
{
	struct timeval timeout = {0, handle->tick ? 1 : 0};
	int status;

	watchdog_begin(&handle->watchdog);
	status = amqp_simple_wait_frame_noblock(handle->conn, frame, &timeout);
	watchdog_end(&handle->watchdog);
	if (status == AMQP_STATUS_OK)
		return true;
	handle->tick = false;
	if (status != AMQP_STATUS_TIMEOUT)
		handle_lose(handle, "the connection was lost", amqp_error_string2(status));
	return false;
}

static void answer_close(struct rabbit_handle *handle, const struct rabbit_event *event)
{
	amqp_channel_close_ok_t channel_ok = {0};
	amqp_connection_close_ok_t connection_ok = {0};

	if (event->kind == RABBIT_EVENT_FAILED)
		send_method(handle, event->channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &channel_ok);
	if (event->kind == RABBIT_EVENT_LOST) {
		send_method(handle, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &connection_ok);
		flush_now(handle);
		handle_lose(handle, "the broker closed the connection", event->text);
	}
}

/* The next event of the frames that are there; false if there is none. */
static bool event_read(struct rabbit_handle *handle, struct rabbit_event *event)
{
	enum frames_result result = FRAMES_NOTHING;
	amqp_frame_t frame;

	while (!handle->lost && result == FRAMES_NOTHING && frame_read(handle, &frame)) {
		result = frames_take(&handle->frames, &frame, event);
		amqp_maybe_release_buffers_on_channel(handle->conn, frame.channel);
	}
	if (result == FRAMES_BROKEN)
		handle_lose(handle, "the connection is of no use", event->text);
	else if (result == FRAMES_EVENT)
		answer_close(handle, event);
	return result == FRAMES_EVENT && event->kind != RABBIT_EVENT_LOST;
}

static void rabbit_poll(struct rabbit_handle *handle, struct rabbit_event *event)
{
	if (event_read(handle, event))
		return;
	memset(event, 0, sizeof(*event));
	if (!handle->lost || handle->lost_told)
		return;
	handle->lost_told = true;
	event->kind = RABBIT_EVENT_LOST;
	snprintf(event->text, sizeof(event->text), "%s", handle->lost_text);
}

static void socket_readable(uv_poll_t *poller, int status UNUSED, int events UNUSED)
{
	struct rabbit_handle *handle = container_of(poller, struct rabbit_handle, poller);

	/* An error of the socket shows in the read. */
	handle->ready(handle->user);
}

static void heartbeat_due(struct loop_timer *timer)
{
	struct rabbit_handle *handle = container_of(timer, struct rabbit_handle, heartbeat);

	handle->tick = true;
	loop_timer_start(timer, handle->heartbeat_us / 3);
	handle->ready(handle->user);
}

/* --- opening --- */

/* What the URL says. The strings point into `text`, which is the caller's. */
static enum result url_parse(const struct rabbit_settings *settings, char *text,
			     struct amqp_connection_info *info, struct error *err)
{
	if (amqp_parse_url(text, info) != AMQP_STATUS_OK)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				 "url is not amqp://user@host:port/vhost, or amqps://");
	if (settings->password)
		info->password = (char *)(uintptr_t)settings->password;
	/* "amqp://host/": the slash alone names no virtual host but the default one. */
	if (!*info->vhost)
		info->vhost = (char *)(uintptr_t)"/";
	return RESULT_OK;
}

static enum result file_check(const char *what, const char *path, struct error *err)
{
	if (path && access(path, R_OK) != 0)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "%s '%s' cannot be read", what,
				 path);
	return RESULT_OK;
}

static enum result rabbit_check(void *broker UNUSED, const struct rabbit_settings *settings, struct error *err)
{
	char *text = mem_strdup(settings->url);
	struct amqp_connection_info info;
	enum result result = url_parse(settings, text, &info, err);

	if (result == RESULT_OK && info.ssl && !settings->ca_file)
		result = error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				   "amqps needs ca-file, the certificates of the authorities to trust");
	else if (result == RESULT_OK && !info.ssl && (settings->ca_file || settings->cert_file))
		result = error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				   "ca-file and cert-file are for amqps, and the URL says amqp");
	else if (result == RESULT_OK && !settings->cert_file != !settings->key_file)
		result = error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				   "cert-file and key-file go together");
	free(text);
	if (result == RESULT_OK)
		result = file_check("ca-file", settings->ca_file, err);
	if (result == RESULT_OK)
		result = file_check("cert-file", settings->cert_file, err);
	return result == RESULT_OK ? file_check("key-file", settings->key_file, err) : result;
}

static enum result open_failed(struct error *err, const char *what, int status)
{
	return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "%s: %s", what, amqp_error_string2(status));
}

static enum result tls_socket(amqp_connection_state_t conn, const struct rabbit_settings *settings,
			      amqp_socket_t **out, struct error *err)
{
	amqp_socket_t *tls = amqp_ssl_socket_new(conn);
	int status;

	if (!tls)
		return open_failed(err, "TLS", AMQP_STATUS_NO_MEMORY);
	amqp_ssl_socket_set_verify_peer(tls, 1);
	amqp_ssl_socket_set_verify_hostname(tls, 1);
	status = amqp_ssl_socket_set_ssl_versions(tls, AMQP_TLSv1_2, AMQP_TLSvLATEST);
	if (status == AMQP_STATUS_OK)
		status = amqp_ssl_socket_set_cacert(tls, settings->ca_file);
	if (status != AMQP_STATUS_OK)
		return open_failed(err, "ca-file", status);
	if (settings->cert_file)
		status = amqp_ssl_socket_set_key(tls, settings->cert_file, settings->key_file);
	if (status != AMQP_STATUS_OK)
		return open_failed(err, "cert-file and key-file", status);
	*out = tls;
	return RESULT_OK;
}

static enum result socket_connect(amqp_connection_state_t conn, const struct rabbit_settings *settings,
				  const struct amqp_connection_info *info, struct error *err)
{
	struct timeval timeout = {CONNECT_S, 0};
	amqp_socket_t *sock = NULL;
	enum result result;
	int status;

	if (info->ssl) {
		result = tls_socket(conn, settings, &sock, err);
		if (result != RESULT_OK)
			return result;
	} else {
		sock = amqp_tcp_socket_new(conn);
		if (!sock)
			return open_failed(err, "socket", AMQP_STATUS_NO_MEMORY);
	}
	status = amqp_socket_open_noblock(sock, info->host, info->port, &timeout);
	if (status == AMQP_STATUS_OK)
		return RESULT_OK;
	error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "%s:%d: %s", info->host, info->port,
		  amqp_error_string2(status));
	return RESULT_AGAIN;
}

static enum result login_failed(struct error *err, const amqp_rpc_reply_t *reply)
{
	const amqp_connection_close_t *close = reply->reply.decoded;

	if (reply->reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply->reply.id == AMQP_CONNECTION_CLOSE_METHOD)
		return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "the broker refuses the login: %.*s",
				 STR_ARG(rabbit_str(close->reply_text)));
	return open_failed(err, "login", reply->library_error);
}

static amqp_table_entry_t entry_true(const char *name)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

	entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
	entry.value.value.boolean = 1;
	return entry;
}

static amqp_table_entry_t entry_text(const char *name, const char *text)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

	entry.value.kind = AMQP_FIELD_KIND_UTF8;
	entry.value.value.bytes = amqp_cstring_bytes(text);
	return entry;
}

/* Says what we understand; the library by itself says next to nothing, and the broker then keeps silent. */
static enum result login(amqp_connection_state_t conn, const struct rabbit_settings *settings,
			 const struct amqp_connection_info *info, struct error *err)
{
	struct timeval login_timeout = {LOGIN_S, 0}, rpc_timeout = {RPC_S, 0};
	amqp_table_entry_t capabilities[] = {
		entry_true("consumer_cancel_notify"), entry_true("connection.blocked"), entry_true("basic.nack"),
		entry_true("publisher_confirms"),     entry_true("authentication_failure_close"),
	};
	amqp_table_entry_t entries[3] = {
		entry_text("product", "Sutra"),
		entry_text("connection_name", settings->name),
		{.key = amqp_cstring_bytes("capabilities")},
	};
	amqp_table_t properties = {ARRAY_LEN(entries), entries};
	amqp_rpc_reply_t reply;

	entries[2].value.kind = AMQP_FIELD_KIND_TABLE;
	entries[2].value.value.table = (amqp_table_t){ARRAY_LEN(capabilities), capabilities};
	amqp_set_handshake_timeout(conn, &login_timeout);
	amqp_set_rpc_timeout(conn, &rpc_timeout);
	reply = amqp_login_with_properties(conn, info->vhost, CHANNEL_MAX, FRAME_MAX, (int)settings->heartbeat_s,
					   &properties, AMQP_SASL_METHOD_PLAIN, info->user, info->password);
	return reply.reply_type == AMQP_RESPONSE_NORMAL ? RESULT_OK : login_failed(err, &reply);
}

struct str rabbit_server_property(amqp_connection_state_t conn, const char *name)
{
	const amqp_table_t *table = amqp_get_server_properties(conn);

	for (int i = 0; i < table->num_entries; i++)
		if (str_equal(rabbit_str(table->entries[i].key), str_of(name)) &&
		    table->entries[i].value.kind == AMQP_FIELD_KIND_UTF8)
			return rabbit_str(table->entries[i].value.value.bytes);
	return STR("?");
}

enum result rabbit_connect(const struct rabbit_settings *settings, amqp_connection_state_t *out,
			   struct error *err)
{
	char *text = mem_strdup(settings->url);
	struct amqp_connection_info info;
	amqp_connection_state_t conn = amqp_new_connection();
	enum result result = url_parse(settings, text, &info, err);

	if (!conn)
		mem_exhausted(sizeof(void *));
	if (result == RESULT_OK)
		result = socket_connect(conn, settings, &info, err);
	if (result == RESULT_OK)
		result = login(conn, settings, &info, err);
	free(text);
	if (result != RESULT_OK)
		amqp_destroy_connection(conn);
	else
		*out = conn;
	return result;
}

/* What was sent and is not acknowledged by the peer's system ends the connection after this, whatever the library does. */
static void socket_limit(int fd, int64_t limit_us)
{
	unsigned limit_ms = (unsigned)(limit_us / US_PER_MS);

	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
}

static enum result rabbit_open(void *broker UNUSED, struct loop *loop, const struct rabbit_settings *settings,
			       void (*ready)(void *user), void *user, struct rabbit_handle **out, struct error *err)
{
	amqp_connection_state_t conn;
	enum result result = rabbit_connect(settings, &conn, err);
	struct rabbit_handle *handle;
	int fd;

	if (result != RESULT_OK)
		return result;
	fd = amqp_get_sockfd(conn);
	handle = mem_zalloc(sizeof(*handle));
	handle->loop = loop;
	handle->ready = ready;
	handle->user = user;
	handle->conn = conn;
	if (!watchdog_start(&handle->watchdog, loop, fd, 2 * settings->heartbeat_s * US_PER_S) ||
	    uv_poll_init(loop_uv(loop), &handle->poller, fd) != 0) {
		watchdog_stop(&handle->watchdog);
		amqp_destroy_connection(conn);
		free(handle);
		return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "no descriptor or thread is left");
	}
	handle->poller.data = handle;
	handle->heartbeat_us = amqp_get_heartbeat(conn) * US_PER_S;
	if (!handle->heartbeat_us)
		handle->heartbeat_us = settings->heartbeat_s * US_PER_S;
	socket_limit(fd, 2 * handle->heartbeat_us);
	frames_init(&handle->frames);
	sender_init(&handle->sender, conn, strncmp(settings->url, "amqps:", 6) == 0);
	arena_init(&handle->send);
	snprintf(handle->product, sizeof(handle->product), "%.*s %.*s", STR_ARG(rabbit_server_property(conn, "product")),
		 STR_ARG(rabbit_server_property(conn, "version")));
	loop_timer_init(&handle->heartbeat, loop, heartbeat_due);
	loop_timer_start(&handle->heartbeat, handle->heartbeat_us / 3);
	uv_poll_start(&handle->poller, UV_READABLE, socket_readable);
	/* Frames that came with the login are in the library's buffer, of which the socket knows nothing. */
	wake_post(handle);
	*out = handle;
	return RESULT_OK;
}

static void poller_closed(uv_handle_t *uv)
{
	struct rabbit_handle *handle = container_of((uv_poll_t *)uv, struct rabbit_handle, poller);

	handle->poller.data = NULL;
	handle_free_check(handle);
}

static void rabbit_close(struct rabbit_handle **handle_ptr, bool is_orderly)
{
	struct rabbit_handle *handle = *handle_ptr;

	*handle_ptr = NULL;
	loop_timer_stop(&handle->heartbeat);
	if (is_orderly)
		flush_now(handle);
	if (is_orderly && !handle->lost) {
		watchdog_begin(&handle->watchdog);
		amqp_connection_close(handle->conn, AMQP_REPLY_SUCCESS);
		watchdog_end(&handle->watchdog);
	}
	/* Before the descriptor is closed, and may be another's. */
	uv_close((uv_handle_t *)&handle->poller, poller_closed);
	watchdog_stop(&handle->watchdog);
	amqp_destroy_connection(handle->conn);
	frames_done(&handle->frames);
	sender_done(&handle->sender);
	arena_done(&handle->send);
	handle->closed = true;
}

static const char *rabbit_product(struct rabbit_handle *handle)
{
	return handle->product;
}

const struct rabbit_client rabbit_client_rabbitmq = {
	.check = rabbit_check,
	.open = rabbit_open,
	.poll = rabbit_poll,
	.channel_open = rabbit_channel_open,
	.channel_close = rabbit_channel_close,
	.qos = rabbit_qos,
	.consume = rabbit_consume,
	.cancel = rabbit_cancel,
	.ack = rabbit_ack,
	.nack = rabbit_nack,
	.nack_all = rabbit_nack_all,
	.confirm = rabbit_confirm,
	.publish = rabbit_publish,
	.close = rabbit_close,
	.product = rabbit_product,
};
