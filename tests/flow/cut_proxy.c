/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy that cuts: see the header. */
#include "tests/flow/cut_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"

#define PAIRS_MAX 64
#define TURN_MS   5

struct cut_proxy {
	pthread_t thread;
	int listener;
	int port;
	int target;
	int pairs[PAIRS_MAX][2]; /* client, server; -1 = none */
	atomic_bool ended;
	atomic_bool cut_all;
	atomic_int cuts;
	_Atomic int64_t bytes[2];
	_Atomic int64_t left[2]; /* -1: not armed */
};

static int socket_to(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void pair_close(struct cut_proxy *proxy, int i)
{
	for (int side = 0; side < 2; side++) {
		if (proxy->pairs[i][side] >= 0)
			close(proxy->pairs[i][side]);
		proxy->pairs[i][side] = -1;
	}
}

static void accept_one(struct cut_proxy *proxy)
{
	int one = 1, client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), server;

	if (client < 0)
		return;
	server = socket_to(proxy->target);
	for (int i = 0; server >= 0 && i < PAIRS_MAX; i++) {
		if (proxy->pairs[i][0] >= 0)
			continue;
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		proxy->pairs[i][0] = client;
		proxy->pairs[i][1] = server;
		return;
	}
	close(client);
	if (server >= 0)
		close(server);
}

/* How much of `len` may go on; the pair is to be closed behind it if that is not all. */
static ssize_t allowed(struct cut_proxy *proxy, int direction, ssize_t len)
{
	int64_t left = atomic_load(&proxy->left[direction]);

	if (left < 0)
		return len;
	if (left >= len && left != 0) {
		atomic_store(&proxy->left[direction], left - len);
		return len;
	}
	atomic_store(&proxy->left[direction], -1);
	return (ssize_t)left;
}

static void forward(struct cut_proxy *proxy, int i, int side)
{
	char bytes[16384];
	ssize_t len = recv(proxy->pairs[i][side], bytes, sizeof(bytes), MSG_DONTWAIT), may;

	if (len <= 0) {
		pair_close(proxy, i);
		return;
	}
	may = allowed(proxy, side, len);
	for (ssize_t done = 0; done < may;) {
		ssize_t sent = send(proxy->pairs[i][!side], bytes + done, (size_t)(may - done), MSG_NOSIGNAL);

		if (sent <= 0) {
			pair_close(proxy, i);
			return;
		}
		done += sent;
	}
	atomic_fetch_add(&proxy->bytes[side], may);
	if (may < len) {
		pair_close(proxy, i);
		atomic_fetch_add(&proxy->cuts, 1);
	}
}

static void turn(struct cut_proxy *proxy)
{
	struct pollfd fds[1 + 2 * PAIRS_MAX];
	int owners[1 + 2 * PAIRS_MAX];
	nfds_t count = 1;

	fds[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
	for (int i = 0; i < PAIRS_MAX; i++)
		for (int side = 0; side < 2 && proxy->pairs[i][0] >= 0; side++) {
			fds[count] = (struct pollfd){.fd = proxy->pairs[i][side], .events = POLLIN};
			owners[count++] = i * 2 + side;
		}
	if (poll(fds, count, TURN_MS) <= 0)
		return;
	for (nfds_t n = 1; n < count; n++)
		if (fds[n].revents && proxy->pairs[owners[n] / 2][owners[n] % 2] == fds[n].fd)
			forward(proxy, owners[n] / 2, owners[n] % 2);
	if (fds[0].revents)
		accept_one(proxy);
}

static void *run(void *arg)
{
	struct cut_proxy *proxy = arg;

	while (!atomic_load(&proxy->ended)) {
		turn(proxy);
		if (!atomic_load(&proxy->cut_all))
			continue;
		for (int i = 0; i < PAIRS_MAX; i++)
			pair_close(proxy, i);
		atomic_fetch_add(&proxy->cuts, 1);
		atomic_store(&proxy->cut_all, false);
	}
	return NULL;
}

struct cut_proxy *cut_proxy_new(int port)
{
	struct cut_proxy *proxy = mem_zalloc(sizeof(*proxy));
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);

	proxy->target = port;
	memset(proxy->pairs, -1, sizeof(proxy->pairs));
	atomic_store(&proxy->left[0], -1);
	atomic_store(&proxy->left[1], -1);
	inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
	proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(proxy->listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(proxy->listener, 64) != 0 ||
	    getsockname(proxy->listener, (struct sockaddr *)&address, &len) != 0 ||
	    pthread_create(&proxy->thread, NULL, run, proxy) != 0)
		abort();
	proxy->port = ntohs(address.sin_port);
	return proxy;
}

void cut_proxy_free(struct cut_proxy **proxy)
{
	struct cut_proxy *p = *proxy;

	if (!p)
		return;
	atomic_store(&p->ended, true);
	pthread_join(p->thread, NULL);
	for (int i = 0; i < PAIRS_MAX; i++)
		pair_close(p, i);
	close(p->listener);
	free(p);
	*proxy = NULL;
}

int cut_proxy_port(const struct cut_proxy *proxy)
{
	return proxy->port;
}

void cut_proxy_arm(struct cut_proxy *proxy, enum cut_direction direction, int64_t bytes)
{
	atomic_store(&proxy->left[direction], bytes);
}

void cut_proxy_cut(struct cut_proxy *proxy)
{
	struct timespec pause = {0, 1000000};

	atomic_store(&proxy->cut_all, true);
	while (atomic_load(&proxy->cut_all))
		nanosleep(&pause, NULL);
}

int64_t cut_proxy_bytes(const struct cut_proxy *proxy, enum cut_direction direction)
{
	return atomic_load(&((struct cut_proxy *)(uintptr_t)proxy)->bytes[direction]);
}

int cut_proxy_cuts(const struct cut_proxy *proxy)
{
	return atomic_load(&((struct cut_proxy *)(uintptr_t)proxy)->cuts);
}
