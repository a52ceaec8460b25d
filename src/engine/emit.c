/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node sends: q:send to a channel of the package, q:reply to whoever sent the message that started the instance.
 * Bodies are values here; the codec of the channel turns them into bytes after the step.
 *
 * Where a reply goes, and which channel codes it:
 *
 *	                      with a reply address           without
 *	channel of q:reply    codes it                       carries it
 *	else reply-channel    codes it                       carries it
 *	else                  the inbound channel codes it   OUTBOUND_NO_REPLY_ADDRESS
 */
#include "engine/behaviour.h"

static enum result send_headers(struct step *step, const struct node *node,
				struct header_list *headers, struct error *err)
{
	*headers = (struct header_list){NULL, 0};
	if (!node->header_count)
		return RESULT_OK;
	headers->items = arena_alloc(step->env->arena,
				     node->header_count * sizeof(*headers->items));
	for (uint32_t i = 0; i < node->header_count; i++) {
		const struct header_rule *rule = &node->headers[i];
		msgpack_object value;
		enum result result = step_eval(step, node, rule->value, &value, err);

		if (result == RESULT_OK)
			result = step_made(step, value_size(&value), err);
		if (result != RESULT_OK)
			return result;
		if (!value_is_nil(&value))
			headers->items[headers->count++] = (struct header){rule->name, value};
	}
	return RESULT_OK;
}

static enum result send_key(struct step *step, const struct node *node,
			    const struct channel *channel, struct str *key, struct error *err)
{
	msgpack_object value;
	enum result result;

	*key = STR_NONE;
	if (channel->key) {
		result = step_eval(step, node, channel->key, &value, err);
		if (result == RESULT_OK)
			result = scalar_text(step->env->arena, &value, "record key of channel",
					     channel->name, key, err);
		if (result != RESULT_OK)
			return result;
	}
	if (!key->ptr) {
		char text[ID_TEXT_SIZE];

		*key = arena_str(step->env->arena, str_of(id_format(step->inst->id, text)));
	}
	return RESULT_OK;
}

/* Adds `send` with body, headers and key; its channel and destination are set. */
static enum result send_add(struct step *step, const struct node *node,
			    const struct expression *body, struct step_send send, struct error *err)
{
	struct step_result *out = step->out;
	enum result result = RESULT_OK;

	if (body)
		result = step_eval(step, node, body, &send.body, err);
	else
		send.body = task_inputs(step); /* a channel call */
	if (result == RESULT_OK)
		result = step_made(step, value_size(&send.body), err);
	if (result == RESULT_OK)
		result = send_headers(step, node, &send.headers, err);
	if (result == RESULT_OK)
		result = send_key(step, node, send.channel, &send.key, err);
	if (result != RESULT_OK)
		return result;
	send.node = node;
	send.ordinal = out->send_count;
	out->sends = step_grow(step->env->arena, out->sends, out->send_count, &step->send_cap,
			       sizeof(*out->sends));
	out->sends[out->send_count++] = send;
	return RESULT_OK;
}

static enum result emit_send(struct step *step, const struct node *node, struct error *err)
{
	const struct send_rule *rule = node->send;
	const struct channel *channel = deployment_channel(step->env->deployment, rule->channel);

	if (!channel)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "channel %.*s is not in the deployment", STR_ARG(rule->channel));
	return send_add(step, node, rule->body,
			(struct step_send){.channel = channel,
					   .content_type = rule->content_type,
					   .required = rule->required},
			err);
}

static enum result emit_reply(struct step *step, const struct node *node, struct error *err)
{
	const struct deployment *deployment = step->env->deployment;
	const struct reply_address *address = &step->inst->reply;
	const struct channel *inbound = NULL;
	struct str name = node->reply->channel;
	const struct channel *channel;

	if (address->channel.ptr)
		inbound = deployment_channel(deployment, address->channel);
	if (!name.ptr && inbound)
		name = inbound->reply_channel;
	if (name.ptr)
		channel = deployment_channel(deployment, name);
	else
		channel = address->destination.ptr ? inbound : NULL;
	if (!channel && !name.ptr && !address->destination.ptr)
		return error_set(err, RESULT_REJECT, CODE_OUTBOUND_NO_REPLY_ADDRESS,
				 "the message that started the instance gave no reply address, and "
				 "no reply channel is set");
	if (!channel)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "channel %.*s of the reply is not in the deployment",
				 STR_ARG(name.ptr ? name : address->channel));
	return send_add(
		step, node, node->reply->body,
		(struct step_send){.channel = channel, .is_reply = true, .destination = *address},
		err);
}

enum result step_emit(struct step *step, const struct node *node, struct error *err)
{
	enum result result = RESULT_OK;

	if (node->send)
		result = emit_send(step, node, err);
	if (result == RESULT_OK && node->reply)
		result = emit_reply(step, node, err);
	return result;
}
