/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting requests of one kind. Each tenant has a list of its own and the lists are served in turn, so that a tenant with a
 * thousand requests takes no more than its share of the next batch while others wait. Lists stay when they are empty, for
 * the same few tenants come again; only among very many they are freed.
 */
#include "base/alloc.h"
#include "store/internal.h"

#define TENANTS_KEPT 1024

struct tenant_queue {
	struct list ring;
	struct list requests;
	char *tenant;
	size_t tenant_len;
};

void queue_init(struct queue *queue)
{
	map_init(&queue->tenants);
	list_init(&queue->ring);
	queue->count = 0;
}

void queue_done(struct queue *queue)
{
	for (struct map_entry *entry = map_first(&queue->tenants); entry;
	     entry = map_next(&queue->tenants, entry))
		free(entry->value);
	map_done(&queue->tenants);
}

struct str request_tenant(const struct store_request *request)
{
	switch (request->kind) {
	case STORE_CLAIM:
		return container_of(request, const struct store_claim, base)->tenant;
	case STORE_RELEASE:
		return container_of(request, const struct store_release, base)->tenant;
	case STORE_RESOLVE:
		return container_of(request, const struct store_resolve, base)->tenant;
	case STORE_COMMIT:
	case STORE_TAKE:
		return container_of(request, const struct store_commit, base)->tenant;
	case STORE_PROBE:
		return container_of(request, const struct store_probe, base)->tenant;
	case STORE_QUERY:
	case STORE_KIND_COUNT:
		break;
	}
	return STR("");
}

static struct tenant_queue *tenant_queue_of(struct queue *queue, struct str tenant)
{
	struct tenant_queue *tq = map_get(&queue->tenants, tenant);

	if (tq)
		return tq;
	tq = mem_zalloc(sizeof(*tq) + tenant.len + 1);
	tq->tenant = (char *)(tq + 1);
	tq->tenant_len = tenant.len;
	if (tenant.len)
		memcpy(tq->tenant, tenant.ptr, tenant.len);
	list_init(&tq->requests);
	map_put(&queue->tenants, tenant, tq);
	return tq;
}

void queue_push(struct queue *queue, struct store_request *request)
{
	struct tenant_queue *tq = tenant_queue_of(queue, request_tenant(request));

	if (list_is_empty(&tq->requests))
		list_push(&queue->ring, &tq->ring);
	list_push(&tq->requests, &request->link);
	queue->count++;
}

void queue_push_front(struct queue *queue, struct store_request *request)
{
	struct tenant_queue *tq = tenant_queue_of(queue, request_tenant(request));

	if (list_is_empty(&tq->requests))
		list_push_front(&queue->ring, &tq->ring);
	list_push_front(&tq->requests, &request->link);
	queue->count++;
}

struct store_request *queue_peek(struct queue *queue)
{
	struct tenant_queue *tq = list_first(&queue->ring, struct tenant_queue, ring);

	return tq ? list_first(&tq->requests, struct store_request, link) : NULL;
}

struct store_request *queue_pop(struct queue *queue)
{
	struct tenant_queue *tq = list_first(&queue->ring, struct tenant_queue, ring);
	struct store_request *request;

	if (!tq)
		return NULL;
	request = list_first(&tq->requests, struct store_request, link);
	list_remove(&request->link);
	queue->count--;
	list_remove(&tq->ring);
	if (!list_is_empty(&tq->requests)) {
		list_push(&queue->ring, &tq->ring);
	} else if (queue->tenants.count > TENANTS_KEPT) {
		map_remove(&queue->tenants, str_make(tq->tenant, tq->tenant_len));
		free(tq);
	}
	return request;
}
