/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * DCQCN, the reaction point (Zhu et al., Congestion control for large-scale RDMA deployments, SIGCOMM 2015): a CNP cuts
 * the rate, a timer raises it again. As in NVIDIA's NICs and ns-3's HPCC model there is no byte counter. Timers are not
 * kept: whatever periods have ended are made up for when the queue pair next has something to do.
 */
#ifndef RAILBED_NIC_RATE_H
#define RAILBED_NIC_RATE_H

#include "nic_icrc.h"

#define ALPHA_ONE (1u << 16)
#define PERIODS_AT_ONCE 8

static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline void cut_rate(struct nic_qp *qp, const struct nic_settings *set, __u64 now)
{
	__u64 rate = qp->rate_bytes - (qp->rate_bytes * qp->alpha / 2 >> 16);

	qp->rate_target_bytes = qp->rate_bytes;
	qp->rate_bytes = rate < set->rate_min_bytes ? set->rate_min_bytes : rate;
	qp->alpha += (ALPHA_ONE - qp->alpha) >> set->alpha_gain_shift;
	qp->alpha_ns = qp->rise_ns = now;
	qp->rate_stage = 0;
}

static __always_inline void raise_rate(struct nic_qp *qp, const struct nic_settings *set)
{
	if (qp->rate_stage > set->fast_recovery_steps)
		qp->rate_target_bytes += set->rise_hyper_bytes;
	else if (qp->rate_stage == set->fast_recovery_steps)
		qp->rate_target_bytes += set->rise_additive_bytes;
	qp->rate_target_bytes = lesser(qp->rate_target_bytes, qp->rate_max_bytes);
	qp->rate_bytes = (qp->rate_bytes + qp->rate_target_bytes + 1) / 2;
	if (qp->rate_stage <= set->fast_recovery_steps)
		qp->rate_stage++;
}

/* Periods that have ended since the first ACK; the last counts as ending now if more have than are made up for. */
static __always_inline void pass_time(struct nic_qp *qp, const struct nic_settings *set, __u64 now)
{
	if (!qp->rise_ns)
		qp->alpha_ns = qp->rise_ns = now;
	for (int i = 0; i < PERIODS_AT_ONCE && now - qp->alpha_ns >= set->alpha_period_ns; i++) {
		qp->alpha -= qp->alpha >> set->alpha_gain_shift;
		qp->alpha_ns = i == PERIODS_AT_ONCE - 1 ? now : qp->alpha_ns + set->alpha_period_ns;
	}
	for (int i = 0; i < PERIODS_AT_ONCE && now - qp->rise_ns >= set->rise_period_ns; i++) {
		raise_rate(qp, set);
		qp->rise_ns = i == PERIODS_AT_ONCE - 1 ? now : qp->rise_ns + set->rise_period_ns;
	}
}

/* Packets that may be on their way: the window, in proportion to the rate (HPCC's VAR_WIN), so that a cut acts at once. */
static __always_inline __u32 window_of(const struct nic_qp *qp, const struct nic_settings *set)
{
	__u64 window = set->window_packets;

	if (set->dcqcn)
		window = window * qp->rate_bytes / (qp->rate_max_bytes ?: 1);
	return window ?: 1;
}

/* When the next packet may leave, in place of waiting for it: fq holds it back until then. */
static __always_inline __u64 departure(struct nic_qp *qp, __u64 now, __u32 bytes)
{
	__u64 at = qp->departure_ns > now ? qp->departure_ns : now;

	qp->departure_ns = at + bytes * 1000000000ull / (qp->rate_bytes ?: 1);
	return at;
}

#endif
