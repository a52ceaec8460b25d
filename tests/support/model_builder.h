/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deployments built in code, for tests of what runs them: no XML, no package, no checks. Whoever builds a model that the
 * loader would refuse gets what he asked for.
 *
 *	struct model *model = model_new("acme");
 *	model_channel(model, "orders", CHANNEL_INBOUND);
 *	model_process(model, "order");
 *	model_node(model, "Start", NODE_START);		(of the process last begun)
 *	model_source(model, "orders");			(of the node last made)
 *	model_node(model, "End", NODE_END);
 *	model_flow(model, "Start", "End", NULL);
 *	deployment = model_deployment(model);
 *
 * What a call returns may be changed until the next call of the same kind moves the list it stands in.
 *
 * Life cycle: everything sits in the deployment's arena; texts are copied. model_free ends the builder and, unless
 * model_deployment gave it away, the deployment. Threads: one at a time.
 */
#ifndef SUTRA_TESTS_SUPPORT_MODEL_BUILDER_H
#define SUTRA_TESTS_SUPPORT_MODEL_BUILDER_H

#include "model/deployment.h"

struct model;

struct model *model_new(const char *tenant);
void model_free(struct model **model);
/* The finished deployment with one reference, which the caller drops with deployment_unref. The builder is spent. */
struct deployment *model_deployment(struct model *model);

/* Added to the deployment; the fields not given have their documented defaults and may be set in what is returned. */
struct channel *model_channel(struct model *model, const char *name,
			      enum channel_direction direction);
struct process *model_process(struct model *model, const char *id);
/* Of the process last begun, as are nodes and flows. NULL texts mean "none". */
struct variable *model_variable(struct model *model, const char *name, enum variable_type type,
				const char *source);
struct node *model_node(struct model *model, const char *id, enum node_kind kind);
struct flow *model_flow(struct model *model, const char *from, const char *to,
			const char *condition);
/* The node's way out if no condition holds. */
void model_default_flow(struct model *model, const char *from, const char *to);
/* Of the node last made. */
struct source *model_source(struct model *model, const char *channel);
void model_validate(struct model *model, const char *expression, const char *code);
struct alias_rule *model_alias(struct model *model, const char *name, const char *expression,
			       const char *value, bool unique);
struct send_rule *model_send(struct model *model, const char *channel, const char *body);
struct reply_rule *model_reply(struct model *model, const char *body, const char *channel);
void model_header(struct model *model, const char *name, const char *value);
void model_script(struct model *model, const char *script);

/* A new expression of the deployment's set; NULL for NULL. */
const struct expression *model_expression(struct model *model, enum expression_kind kind,
					  const char *source);

#endif
