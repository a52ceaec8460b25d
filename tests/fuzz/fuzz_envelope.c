/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes of kept messages: what is taken comes back the same. Rows can be written to by operators. */
#include "flow/envelope.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void same_text(struct str a, struct str b)
{
	assert(!a.ptr == !b.ptr && str_equal(a, b));
}

static void same(const struct message *a, const struct message *b)
{
	same_text(a->identity, b->identity);
	same_text(a->source, b->source);
	same_text(a->key, b->key);
	same_text(a->content_type, b->content_type);
	same_text(a->type, b->type);
	same_text(a->message_id, b->message_id);
	same_text(a->reply_destination, b->reply_destination);
	assert(value_equal(&a->reply_correlation, &b->reply_correlation));
	assert(a->time_us == b->time_us && a->headers.count == b->headers.count);
}

static void same_note(const struct envelope_note *a, const struct envelope_note *b)
{
	same_text(a->event_id, b->event_id);
	assert(id_equal(a->dead_letter, b->dead_letter) && a->aim == b->aim);
	if (a->aim == ENVELOPE_AIM_NONE)
		return;
	assert(id_equal(a->instance, b->instance) && id_equal(a->wait_key, b->wait_key) &&
	       id_equal(a->alias_key, b->alias_key));
	assert(a->aim != ENVELOPE_AIM_WAIT || a->token == b->token);
	same_text(a->node, b->node);
	same_text(a->deployment, b->deployment);
	same_text(a->process, b->process);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct envelope_note note, note_back;
	struct message *message, *back;
	struct error err = ERROR_INIT;
	struct arena arena;
	enum result res;

	arena_init(&arena);
	res = envelope_unpack(str_make(bytes, len), STR("body"), &message, &note, &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else {
		res = envelope_unpack(envelope_pack(&arena, message, &note), message->body, &back,
				      &note_back, &err);
		assert(!res);
		same(message, back);
		same_note(&note, &note_back);
		message_free(&message);
		message_free(&back);
	}
	arena_done(&arena);
	return 0;
}
