/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The receiving end of a queue pair. Each packet is placed by its own address, whatever the order; a message is complete
 * when all packets up to its last have arrived, and may then release requests of this server's NICs.
 */
#ifndef RAILBED_NIC_RECEIVE_H
#define RAILBED_NIC_RECEIVE_H

#include "nic_ack.h"

#define REST_OFFSET 62 /* of the frame: R_Key, message length, immediate */
#define RELEASES_AT_ONCE 256

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} nic_events SEC(".maps");

enum verdict { SILENT, ACKNOWLEDGE, REFUSE };

static __always_inline void say_done(struct nic_progress *progress, __u64 now)
{
	progress->last_ns = now;
	bpf_ringbuf_output(&nic_events, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
}

/* One message less to wait for. */
__noinline int release(__u32 at)
{
	struct nic_release *entry = LOOKUP(nic_releases, at);
	struct nic_request *request = entry ? LOOKUP(nic_requests, entry->request) : 0;

	if (!request || !request->waits)
		return 0;
	request->waits--;
	if (!request->waits)
		make_ready(request->qpn);
	return 0;
}

/* The oldest message of the queue pair, if all of it is there: 1. */
__noinline int complete_one(__u32 qpn)
{
	struct nic_progress *progress = LOOKUP(nic_progress, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_request *request;
	__u32 first, releases;

	if (!qp || !progress || qp->receive_next >= qp->receive_end || distance(qp->psn_expected, qp->receive_psn_end) < 0)
		return 0;
	request = LOOKUP(nic_requests, qp->receive_next);
	if (!request)
		return 0;
	request->done_ns = bpf_ktime_get_ns();
	first = request->release_first;
	releases = request->releases;
	if (__sync_fetch_and_add(&progress->remaining, -1) == 1)
		say_done(progress, request->done_ns);
	qp->receive_next++;
	request = LOOKUP(nic_requests, qp->receive_next);
	if (request && qp->receive_next < qp->receive_end)
		qp->receive_psn_end = request->psn_first + request->packets;
	for (__u32 i = 0; i < RELEASES_AT_ONCE && i < releases; i++)
		release(first + i);
	return 1;
}

__noinline int complete(__u32 qpn)
{
	for (int i = 0; i < WINDOW_MAX; i++)
		if (!complete_one(qpn))
			break;
	return 0;
}

/* What has arrived beyond the gap now follows without one. */
static __always_inline void close_gap(struct nic_qp *qp, struct nic_window *window)
{
	for (int i = 0; i < WINDOW_MAX && qp->early && test_bit(window->seen, qp->psn_expected); i++) {
		window->seen[qp->psn_expected / 64 % WINDOW_WORDS] &= ~(1ull << qp->psn_expected % 64);
		qp->psn_expected++;
		qp->early--;
	}
}

/* gbn: is this the packet that is due? */
static __always_inline enum verdict in_order(struct nic_qp *qp, __s32 ahead)
{
	if (!ahead) {
		qp->psn_expected++;
		qp->nak_sent = 0;
		return ACKNOWLEDGE;
	}
	qp->refused_packets++;
	return REFUSE;
}

/* sr: any packet of the window that is new. */
__noinline int in_window(__u32 qpn, __u32 psn)
{
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_window *window = LOOKUP(nic_windows, qpn);
	__u32 ahead;

	if (!qp || !window)
		return REFUSE;
	ahead = psn - qp->psn_expected;
	if (ahead >= WINDOW_MAX) {
		qp->refused_packets++;
		return REFUSE;
	}
	if (!ahead) {
		qp->psn_expected++;
		close_gap(qp, window);
		return ACKNOWLEDGE;
	}
	if (test_bit(window->seen, psn)) {
		qp->duplicate_packets++;
		return SILENT;
	}
	window->seen[psn / 64 % WINDOW_WORDS] |= 1ull << psn % 64;
	qp->early++;
	qp->early_packets++;
	return ACKNOWLEDGE;
}

/* Does the packet lie where its message says, with the length that belongs there? */
static __always_inline bool placed_right(struct __sk_buff *skb, const union arrival *packet, struct nic_qp *qp,
					 const struct nic_settings *set, __u32 psn, __u32 *payload)
{
	__be32 rest[3];
	struct nic_request *request;
	__u32 number, index;

	if (bpf_skb_load_bytes(skb, REST_OFFSET, rest, sizeof(rest)))
		return false;
	number = qp->receive_first + bpf_ntohl(rest[2]);
	request = LOOKUP(nic_requests, number);
	if (!request || number >= qp->receive_end || !within(request, psn))
		return false;
	index = psn - request->psn_first;
	*payload = payload_of(request, index, set->mtu_bytes);
	return bpf_be64_to_cpu(packet->va) == request->va + (__u64)index * set->mtu_bytes &&
	       bpf_ntohl(rest[1]) == request->bytes && skb->len == frame_bytes(set, *payload);
}

/* Answers pass the data that waits in the NIC, where it can tell them apart (sch_prio). */
static __always_inline void put_first(struct __sk_buff *skb, const struct nic_qp *qp)
{
	skb->priority = PRIORITY_CONTROL;
	bpf_clone_redirect(skb, qp->ifindex, 0);
}

static __noinline int send_ack(struct __sk_buff *skb, struct nic_qp *qp, __u32 psn, __u32 syndrome, const struct nic_settings *set)
{
	union frame frame;

	fill_head(&frame, qp, ACK_BYTES);
	frame.opcode = OPCODE_ACK;
	frame.flags = 0;
	frame.psn = bpf_htonl(psn & PSN_MASK);
	frame.ack.aeth = bpf_htonl(syndrome | (qp->receive_next - qp->receive_first & PSN_MASK)); /* MSN: messages complete */
	frame.ack.base = 0;
	qp->acks_sent++;
	if (!write_roce(skb, &frame, ACK_BYTES, ACK_BYTES, set, 0))
		put_first(skb, qp);
	return 0;
}

/* An ACK, and what has arrived round PSN `about`, in two words of the bitmap. */
static __noinline int send_sack(struct __sk_buff *skb, __u32 qpn, __u32 about, const struct nic_settings *set)
{
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_window *window = LOOKUP(nic_windows, qpn);
	__u32 base = (about & ~63u) - 64;
	union frame frame;

	if (!qp || !window)
		return 0;
	if (distance(base, qp->psn_expected & ~63u) < 0)
		base = qp->psn_expected & ~63u;
	fill_head(&frame, qp, SACK_BYTES);
	frame.opcode = OPCODE_ACK;
	frame.flags = 0;
	frame.psn = bpf_htonl((qp->psn_expected - 1) & PSN_MASK);
	frame.ack.aeth = bpf_htonl(ACK_SYNDROME | (qp->receive_next - qp->receive_first & PSN_MASK));
	frame.ack.base = bpf_htonl(base & PSN_MASK);
	frame.ack.arrived[0] = bpf_cpu_to_be64(window->seen[base / 64 % WINDOW_WORDS]);
	frame.ack.arrived[1] = bpf_cpu_to_be64(window->seen[(base / 64 + 1) % WINDOW_WORDS]);
	frame.ack.icrc = 0;
	qp->acks_sent++;
	if (!write_roce(skb, &frame, SACK_BYTES, SACK_BYTES, set, 0))
		put_first(skb, qp);
	return 0;
}

/* The notification point: at most one CNP an interval. */
static __noinline int send_cnp(struct __sk_buff *skb, __u32 qpn)
{
	struct nic_settings *set = LOOKUP(nic_settings, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	__u64 now = bpf_ktime_get_ns();
	union frame frame;

	if (!set || !qp || (qp->cnps_sent && now - qp->cnp_ns < set->cnp_interval_ns))
		return 0;
	qp->cnp_ns = now;
	qp->cnps_sent++;
	fill_head(&frame, qp, CNP_BYTES);
	change_tos(&frame, CNP_TOS);
	frame.opcode = OPCODE_CNP;
	frame.flags = 0;
	frame.target_qp |= bpf_htonl(BTH_BECN);
	frame.psn = 0;
	frame.words[7] = frame.words[8] = frame.words[9] = 0;
	if (!write_roce(skb, &frame, CNP_BYTES, CNP_BYTES, set, 0))
		put_first(skb, qp);
	return 0;
}

static __always_inline void answer(struct __sk_buff *skb, struct nic_qp *qp, __u32 qpn, __u32 psn, enum verdict verdict, bool asked,
				   const struct nic_settings *set)
{
	if (verdict == REFUSE && !set->selective) {
		if (!qp->nak_sent) {
			qp->nak_sent = 1;
			qp->naks_sent++;
			send_ack(skb, qp, qp->psn_expected, NAK_SYNDROME, set);
		}
	} else if (asked && qp->early) {
		send_sack(skb, qpn, psn, set);
	} else if (asked) {
		send_ack(skb, qp, qp->psn_expected - 1, ACK_SYNDROME, set);
	}
}

/*
 * Did it complete a message? The packet that closes the last gap is answered unasked: those that asked came before it and
 * were told of the gap, and the sender would wait for its timer.
 */
static __always_inline bool on_data(struct __sk_buff *skb, const union arrival *packet, __u32 qpn, struct nic_qp *qp,
				    const struct nic_settings *set)
{
	__u32 wire = bpf_ntohl(packet->psn), psn = whole_psn(qp->psn_expected, wire & PSN_MASK), payload = 0;
	__u32 early = qp->early;
	__s32 ahead = distance(psn, qp->psn_expected);
	enum verdict verdict = SILENT;

	if (ahead >= 0 && !placed_right(skb, packet, qp, set, psn, &payload)) {
		qp->misplaced_packets++;
		return false;
	}
	if ((packet->tos & 3) == CE) {
		qp->ce_packets++;
		if (set->dcqcn)
			send_cnp(skb, qpn);
	}
	if (ahead < 0)
		qp->duplicate_packets++;
	else if (!set->selective)
		verdict = in_order(qp, ahead);
	else if (!ahead && !qp->early)
		qp->psn_expected++, verdict = ACKNOWLEDGE;
	else
		verdict = in_window(qpn, psn);
	if (verdict == ACKNOWLEDGE) {
		if (distance(psn, qp->psn_high) >= 0)
			qp->psn_high = psn + 1;
		else
			qp->reordered_packets++;
		qp->placed_packets++;
		qp->placed_bytes += payload;
	}
	answer(skb, qp, qpn, psn, verdict, wire & ACK_REQUEST || (early && !qp->early), set);
	if (verdict != ACKNOWLEDGE || distance(qp->psn_expected, qp->receive_psn_end) < 0)
		return false;
	complete(qpn);
	return true;
}

#endif
