/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The sending end of a queue pair. Nothing here waits: what may be sent is sent when something arrives (an ACK, a message
 * that a request waited for, a tick), over copies of the packet that arrived.
 *
 * Functions without the packet are global, so that the verifier checks each once and not once per turn of a loop. Those
 * with it can't be: a kernel without BTF, as the lab's, doesn't know what a global function's __sk_buff is.
 */
#ifndef RAILBED_NIC_SEND_H
#define RAILBED_NIC_SEND_H

#include "nic_rate.h"

/* What a queue pair did with its turn. It keeps it until it has asked for an ACK, which lets it go on. */
enum sent { NOTHING, UNASKED, ASKED };

#define PACKETS_AT_ONCE 32 /* for one arrival; an ACK comes every few packets, so this catches up with any window */

static __always_inline __s32 distance(__u32 later, __u32 earlier)
{
	return later - earlier;
}

/* The 32-bit PSN nearest to `reference` whose low 24 bits are on the wire. */
static __always_inline __u32 whole_psn(__u32 reference, __u32 wire)
{
	return reference + ((__s32)((wire - reference) << 8) >> 8);
}

static __always_inline bool test_bit(const __u64 *words, __u32 psn)
{
	return words[psn / 64 % WINDOW_WORDS] >> (psn % 64) & 1;
}

static __always_inline __u32 payload_of(const struct nic_request *request, __u32 index, __u32 mtu)
{
	return index + 1 < request->packets ? mtu : request->bytes - (request->packets - 1) * mtu;
}

/* Length on the wire. A packet of a whole MTU may travel elided: its length is one that no other frame can have. */
static __always_inline __u32 frame_bytes(const struct nic_settings *set, __u32 payload)
{
	return WRITE_BYTES + (set->elided && payload == set->mtu_bytes ? 0 : (payload + 3) & ~3u);
}

/* `alone`: a message of one packet with nothing before it, such as a credit, need not wait for other queue pairs' bursts. */
static __always_inline void put_on_wire(struct __sk_buff *skb, struct nic_qp *qp, const struct nic_settings *set, __u32 payload,
					bool alone)
{
	skb->priority = alone ? PRIORITY_CONTROL : 0;
	if (set->paced) {
		__u64 at = departure(qp, bpf_ktime_get_ns(), WRITE_BYTES + payload);

		bpf_skb_set_tstamp(skb, at, BPF_SKB_TSTAMP_DELIVERY_MONO);
	}
	bpf_clone_redirect(skb, qp->ifindex, 0); /* refused where the queue is full: as lost as on any other queue */
}

static __always_inline void send_data(struct __sk_buff *skb, struct nic_qp *qp, const struct nic_settings *set,
				      const struct nic_request *request, __u32 psn, bool ask)
{
	union frame frame;
	__u32 index = psn - request->psn_first;
	__u32 payload = payload_of(request, index, set->mtu_bytes);
	__u32 bytes = frame_bytes(set, payload), elided = bytes == WRITE_BYTES ? payload : 0;

	fill_head(&frame, qp, bytes);
	frame.opcode = OPCODE_WRITE_IMM;
	frame.flags = (-payload & 3) << 4; /* pad count */
	frame.psn = bpf_htonl((psn & PSN_MASK) | (ask ? ACK_REQUEST : 0));
	frame.write.va = bpf_cpu_to_be64(request->va + (__u64)index * set->mtu_bytes);
	frame.write.rkey = bpf_htonl(request->qpn);
	frame.write.message_bytes = bpf_htonl(request->bytes);
	frame.write.immediate = bpf_htonl(request->number);
	frame.write.icrc = 0;
	qp->sent_packets++;
	if (!write_roce(skb, &frame, bytes, WRITE_BYTES, set, elided))
		put_on_wire(skb, qp, set, payload, request->packets == 1 && psn == qp->psn_una);
}

static __always_inline bool within(const struct nic_request *request, __u32 psn)
{
	return distance(psn, request->psn_first) >= 0 && distance(psn, request->psn_first + request->packets) < 0;
}

/* One PSN of a repair, unless it is known to have arrived. */
static __always_inline enum sent repair_one(struct __sk_buff *skb, struct nic_qp *qp, const struct nic_settings *set, __u32 qpn)
{
	struct nic_window *window = LOOKUP(nic_windows, qpn);
	__u32 psn = qp->repair_next;
	struct nic_request *request = LOOKUP(nic_requests, qp->repair_request);

	if (!window || !request)
		return NOTHING;
	qp->repair_next++;
	if (!within(request, psn)) {
		qp->repair_request++;
		request = LOOKUP(nic_requests, qp->repair_request);
		if (!request || !within(request, psn))
			return NOTHING;
	}
	if (distance(psn, qp->psn_una) < 0 || test_bit(window->sacked, psn))
		return UNASKED;
	qp->resent_packets++;
	send_data(skb, qp, set, request, psn, true);
	return ASKED;
}

static __always_inline enum sent send_new(struct __sk_buff *skb, struct nic_qp *qp, const struct nic_settings *set)
{
	struct nic_request *request;
	__u32 psn = qp->psn_next, end, window = window_of(qp, set);
	bool last, ask;

	if (psn - qp->psn_una >= window || qp->send_next >= qp->send_end)
		return NOTHING;
	request = LOOKUP(nic_requests, qp->send_next);
	if (!request || request->waits)
		return NOTHING;
	if (psn == qp->psn_una)
		qp->progress_ns = bpf_ktime_get_ns();
	end = request->psn_first + request->packets;
	last = psn + 1 == end;
	ask = last || (psn + 1) % set->ack_every == 0 || psn + 1 - qp->psn_una >= window;
	qp->psn_next = psn + 1;
	if (last)
		qp->send_next++;
	if (distance(qp->psn_max, psn) > 0)
		qp->resent_packets++;
	else
		qp->psn_max = psn + 1;
	send_data(skb, qp, set, request, psn, ask);
	return ask ? ASKED : UNASKED;
}

static __noinline enum sent send_one(struct __sk_buff *skb, __u32 qpn)
{
	struct nic_settings *set = LOOKUP(nic_settings, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);

	if (!set || !qp)
		return NOTHING;
	if (distance(qp->repair_end, qp->repair_next) > 0)
		return repair_one(skb, qp, set, qpn);
	return send_new(skb, qp, set);
}

/* Send what queue pair `qpn` may send now (0: none), then what those on the server's list may. */
static __always_inline void transmit(struct __sk_buff *skb, __u32 server, __u32 qpn)
{
	for (int i = 0; i < PACKETS_AT_ONCE; i++) {
		enum sent sent = qpn ? send_one(skb, qpn) : NOTHING;

		if (sent == UNASKED)
			continue;
		qpn = sent == ASKED ? next_turn(server, qpn) : take_ready(server);
		if (!qpn)
			return;
	}
	make_ready(qpn);
}

/* The request of PSN `psn`, at most a window away from request `at`; `end` if they end before it. */
__noinline __u32 request_of(__u32 at, __u32 psn, __u32 end)
{
	for (int i = 0; i < WINDOW_MAX && at != end; i++) {
		struct nic_request *request = LOOKUP(nic_requests, at);

		if (!request || within(request, psn))
			break;
		at += distance(psn, request->psn_first) < 0 ? -1 : 1;
	}
	return at;
}

static __always_inline __u32 request_at_psn(const struct nic_qp *qp, __u32 psn)
{
	__u32 at = qp->send_next < qp->send_end ? qp->send_next : qp->send_end - 1;

	return request_of(at, psn, qp->send_end);
}

/* Continue with another PSN; going back is how gbn repairs. */
static __always_inline void go_to(struct nic_qp *qp, __u32 psn)
{
	qp->send_next = request_at_psn(qp, psn);
	qp->psn_next = psn;
}

/* Send again what is not known to have arrived of the PSNs up to `end`. */
static __always_inline void repair(struct nic_qp *qp, __u32 from, __u32 end)
{
	qp->repair_next = from;
	qp->repair_end = end;
	qp->repair_request = request_at_psn(qp, from);
}

static __always_inline void on_timeout(struct nic_qp *qp, const struct nic_settings *set, __u64 now)
{
	qp->timeouts++;
	qp->progress_ns = now;
	if (set->selective)
		repair(qp, qp->psn_una, qp->psn_next);
	else
		go_to(qp, qp->psn_una);
}

#endif
