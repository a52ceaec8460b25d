/* SPDX-License-Identifier: Apache-2.0 */
/* One page of a list: asked for, and shown as JSON or as a table. */
#include "cli/listing.h"

static void listing_print(struct remote *remote, const struct listing *listing)
{
	const msgpack_object_array *list = remote_list(&remote->answer, listing->member);
	struct str next = remote_text(&remote->answer, "next");
	struct table table;

	table_init(&table, listing->heads);
	for (uint32_t i = 0; i < list->size; i++)
		listing->row(remote, &list->ptr[i], &table);
	if (list->size)
		table_print(&table, remote->cli->out);
	table_done(&table);
	if (next.ptr)
		fprintf(remote->cli->out, "More: --cursor %.*s\n", STR_ARG(next));
}

int listing_run(struct remote *remote, const struct listing *listing, struct buf *path, const char *limit, const char *cursor)
{
	remote_query(path, "limit", limit);
	remote_query(path, "cursor", cursor);
	buf_add_byte(path, '\0');
	if (!remote_get(remote, path->data))
		return CLI_FAILED;
	if (!remote_print_json(remote))
		listing_print(remote, listing);
	return CLI_OK;
}
