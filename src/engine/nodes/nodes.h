/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The behaviours of the node kinds, one file each; the table over them is in step.c. Private to src/engine.
 * Each function acts on the token at step->at: see engine/behaviour.h. Threads: as the step.
 */
#ifndef SUTRA_ENGINE_NODES_H
#define SUTRA_ENGINE_NODES_H

#include "engine/behaviour.h"

enum result node_start_enter(struct step *step, const struct node *node,
			     struct error *err) MUST_CHECK;
enum result node_end_enter(struct step *step, const struct node *node,
			   struct error *err) MUST_CHECK;
enum result node_catch_enter(struct step *step, const struct node *node,
			     struct error *err) MUST_CHECK;
enum result node_catch_resume(struct step *step, const struct node *node,
			      struct error *err) MUST_CHECK;
enum result node_receive_enter(struct step *step, const struct node *node,
			       struct error *err) MUST_CHECK;
enum result node_receive_resume(struct step *step, const struct node *node,
				struct error *err) MUST_CHECK;
enum result node_throw_enter(struct step *step, const struct node *node,
			     struct error *err) MUST_CHECK;
enum result node_send_enter(struct step *step, const struct node *node,
			    struct error *err) MUST_CHECK;
enum result node_service_enter(struct step *step, const struct node *node,
			       struct error *err) MUST_CHECK;
enum result node_service_resume(struct step *step, const struct node *node,
				struct error *err) MUST_CHECK;
enum result node_service_fire(struct step *step, const struct node *node,
			      struct error *err) MUST_CHECK;
enum result node_service_failed(struct step *step, const struct node *node, struct str code,
				struct str message, struct error *err) MUST_CHECK;
enum result node_script_enter(struct step *step, const struct node *node,
			      struct error *err) MUST_CHECK;
enum result node_pass_enter(struct step *step, const struct node *node,
			    struct error *err) MUST_CHECK;
enum result node_exclusive_enter(struct step *step, const struct node *node,
				 struct error *err) MUST_CHECK;
enum result node_terminate_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_error_end_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_link_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_parallel_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_inclusive_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_event_gateway_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_subprocess_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_call_enter(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_boundary_resume(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_event_start_resume(struct step *step, const struct node *node,
			struct error *err) MUST_CHECK;
enum result node_subprocess_ended(struct step *step, const struct node *node, uint32_t scope,
			struct error *err) MUST_CHECK;
enum result node_event_subprocess_ended(struct step *step, const struct node *node, uint32_t scope,
			struct error *err) MUST_CHECK;
enum result node_call_ended(struct step *step, const struct node *node, uint32_t scope,
			struct error *err) MUST_CHECK;

#endif
