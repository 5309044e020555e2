/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What comes back to the sending end: ACK, ACK with the PSNs that arrived beyond a gap, NAK, CNP. */
#ifndef RAILBED_NIC_ACK_H
#define RAILBED_NIC_ACK_H

#include "nic_send.h"

/* A RoCE packet from its IP header on, as far as every one of them goes. */
union arrival {
	struct {
		IPV4_FIELDS;
		UDP_FIELDS;
		BTH_FIELDS;
		union {
			__be64 va;
			struct {
				__be32 aeth, base;
			};
		};
	};
	__u64 words[6];
};

#define ARRIVAL_BYTES 48
#define SACK_BITS_OFFSET 62 /* in the frame */

static __always_inline void forget_sacked(struct nic_window *window, __u32 from, __u32 to)
{
	for (int i = 0; i < WINDOW_MAX && from != to; i++, from++)
		window->sacked[from / 64 % WINDOW_WORDS] &= ~(1ull << from % 64);
}

/* All PSNs before `psn` have arrived; the bits of `sacked` that this leaves behind are for PSNs to come. */
__noinline int acknowledged(__u32 qpn, __u32 psn)
{
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_window *window = LOOKUP(nic_windows, qpn);

	if (!qp || !window || distance(psn, qp->psn_una) <= 0 || distance(psn, qp->psn_max) > 0)
		return 0;
	if (distance(qp->sacked_high, qp->psn_una) > 0)
		forget_sacked(window, qp->psn_una, psn);
	qp->psn_una = psn;
	qp->progress_ns = bpf_ktime_get_ns();
	if (distance(psn, qp->psn_next) > 0)
		go_to(qp, psn);
	return 1;
}

/* Bits of 64 PSNs from `base` on: known to have arrived. */
static __always_inline void note_sacked(struct nic_qp *qp, struct nic_window *window, __u32 base, __u64 bits)
{
	__u32 ahead = distance(qp->psn_una, base) > 0 ? qp->psn_una - base : 0;

	if (ahead >= 64 || distance(base, qp->psn_max) >= 0 || base - qp->psn_una + 64 > WINDOW_MAX + ahead)
		return;
	bits = bits >> ahead << ahead;
	window->sacked[base / 64 % WINDOW_WORDS] |= bits;
	if (bits && distance(base + 64, qp->sacked_high) > 0) {
		__u32 high = base;

		for (int i = 0; i < 64; i++)
			if (bits >> i & 1)
				high = base + i + 1;
		if (distance(high, qp->sacked_high) > 0)
			qp->sacked_high = high;
	}
}

/*
 * A gap is no loss where packets take many paths. Only what lags `reorder_packets` behind the latest arrival is sent
 * again at once, and once; for all else, and for repairs that are lost too, there is the timer.
 */
static __always_inline void repair_early(struct nic_qp *qp, const struct nic_settings *set)
{
	__u32 end = qp->sacked_high - set->reorder_packets;
	__u32 from = distance(qp->repaired_to, qp->psn_una) > 0 ? qp->repaired_to : qp->psn_una;

	if (distance(qp->repair_end, qp->repair_next) > 0 || distance(end, from) <= 0)
		return;
	repair(qp, from, end);
	qp->repaired_to = end;
}

static __noinline int selectively_acknowledged(struct __sk_buff *skb, __u32 qpn, __u32 wire_base)
{
	struct nic_settings *set = LOOKUP(nic_settings, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_window *window = LOOKUP(nic_windows, qpn);
	__be64 arrived[2];
	__u32 base;

	if (!set || !qp || !window || bpf_skb_load_bytes(skb, SACK_BITS_OFFSET, arrived, sizeof(arrived)))
		return 0;
	base = whole_psn(qp->psn_una, wire_base & PSN_MASK);
	qp->sacks_received++;
	note_sacked(qp, window, base, bpf_be64_to_cpu(arrived[0]));
	note_sacked(qp, window, base + 64, bpf_be64_to_cpu(arrived[1]));
	repair_early(qp, set);
	return 0;
}

static __always_inline void on_ack(struct __sk_buff *skb, const union arrival *packet, __u32 qpn, struct nic_qp *qp)
{
	__u32 aeth = bpf_ntohl(packet->aeth);
	__u32 psn = whole_psn(qp->psn_una, bpf_ntohl(packet->psn) & PSN_MASK);

	qp->acks_received++;
	if ((aeth & 0xff000000u) == NAK_SYNDROME) {
		qp->naks_received++;
		acknowledged(qpn, psn);
		if (psn == qp->psn_una && distance(qp->psn_next, psn) > 0)
			go_to(qp, psn);
		return;
	}
	acknowledged(qpn, psn + 1);
	if (skb->len >= SACK_BYTES)
		selectively_acknowledged(skb, qpn, bpf_ntohl(packet->base));
}

#endif
