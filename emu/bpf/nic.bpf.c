// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The RDMA engine of a NIC: reliable connections that write messages into the memory of another server's GPU.
 *
 * `nic` runs on clsact ingress of every NIC and answers what arrives with what is to be sent. Its clock is one frame a
 * server, which circulates through the slow queue of the loopback and `tick` on its ingress: it starts the first requests
 * and, like a NIC's retransmission timer, repairs what has made no progress. BPF's own timers can't send packets, and the
 * lab kernel's interpreter has none.
 */
#include "nic_receive.h"
#include <linux/in.h>
#include <linux/pkt_cls.h>

/*
 * A tick passes for IPv4, of a version that isn't: what is written over it must be IP to the kernel, or fq would neither keep
 * its departure time nor tell its flow. Identification and fragment offset are its server's number.
 */
#define TICK_VERSION_IHL 0
#define TICK_QPS 4096
#define LOOPBACK 1

static __always_inline void on_cnp(struct nic_qp *qp, const struct nic_settings *set)
{
	__u64 now = bpf_ktime_get_ns();

	qp->cnps_received++;
	if (!set->dcqcn)
		return;
	pass_time(qp, set, now);
	cut_rate(qp, set, now);
}

static __always_inline int engine(struct __sk_buff *skb, const union arrival *packet)
{
	__u32 qpn = bpf_ntohl(packet->target_qp) & PSN_MASK;
	struct nic_settings *set = LOOKUP(nic_settings, zero);
	struct nic_progress *progress = LOOKUP(nic_progress, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	bool released = false;

	if (!set || !progress)
		return TC_ACT_OK;
	if (!qp || qp->ifindex != skb->ifindex) {
		__sync_fetch_and_add(&progress->strangers, 1);
		return TC_ACT_SHOT;
	}
	if (set->icrc && !arrived_whole(skb, packet->opcode, set)) {
		qp->icrc_errors++;
		return TC_ACT_SHOT;
	}
	if (packet->opcode == OPCODE_WRITE_IMM) {
		released = on_data(skb, packet, qpn, qp, set);
	} else if (packet->opcode == OPCODE_CNP) {
		on_cnp(qp, set);
	} else if (packet->opcode == OPCODE_ACK) {
		on_ack(skb, packet, qpn, qp);
		if (set->dcqcn)
			pass_time(qp, set, bpf_ktime_get_ns());
		transmit(skb, qp->server, qpn);
		return TC_ACT_SHOT;
	}
	if (released)
		transmit(skb, qp->server, 0);
	return TC_ACT_SHOT;
}

/*
 * Whether it has made no progress for too long or has not begun: it gets a turn. One that waits for a message gets it when
 * that arrives; before, it would only keep those that can send from theirs.
 */
__noinline int look_after(__u32 qpn)
{
	struct nic_settings *set = LOOKUP(nic_settings, zero);
	struct nic_qp *qp = LOOKUP(nic_qps, qpn);
	struct nic_request *request;
	__u64 now;

	if (!set || !qp || (qp->send_next == qp->send_end && qp->psn_next == qp->psn_una))
		return 0;
	if (qp->psn_next != qp->psn_una) {
		now = bpf_ktime_get_ns();
		if (now - qp->progress_ns < set->rto_ns)
			return 0;
		on_timeout(qp, set, now);
	} else {
		request = LOOKUP(nic_requests, qp->send_next);
		if (!request || request->waits)
			return 0;
	}
	return make_ready(qpn);
}

/* A tick has come round: look after every queue pair of the server, and send it round again. */
static __always_inline int on_tick(struct __sk_buff *skb, __u32 at)
{
	struct nic_progress *progress = LOOKUP(nic_progress, zero);
	struct nic_server *server;
	union frame frame = {};

	if (!progress || progress->stopped)
		return TC_ACT_SHOT;
	server = LOOKUP(nic_servers, at);
	if (!server)
		return TC_ACT_SHOT;
	if (!progress->first_ns)
		progress->first_ns = bpf_ktime_get_ns();
	progress->ticks++;
	for (__u32 i = 0; i < TICK_QPS && i < server->qps; i++)
		look_after(server->qpn_first + i);
	transmit(skb, at, 0);

	frame.words[1] = (__u64)bpf_htons(ETH_P_IP) << 48;
	frame.id_fragment = at;
	if (write_frame(skb, &frame, ACK_BYTES, ACK_BYTES))
		return TC_ACT_SHOT;
	if (server->ready_first) /* more than one round of packets to begin with: at once, or it would wait for the first ACK */
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return bpf_redirect(LOOPBACK, 0);
}

SEC("tc")
int nic(struct __sk_buff *skb)
{
	union arrival packet;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &packet, ARRIVAL_BYTES))
		return TC_ACT_OK;
	if (packet.version_ihl == TICK_VERSION_IHL)
		return on_tick(skb, packet.id_fragment);
	if (packet.protocol != IPPROTO_UDP || packet.target_port != bpf_htons(ROCE_UDP_PORT))
		return TC_ACT_OK;
	return engine(skb, &packet);
}

/* On loopback: hand the tick to the NIC of its first queue pair, so that one CPU touches all of them. */
SEC("tc")
int tick(struct __sk_buff *skb)
{
	struct {
		IPV4_FIELDS;
	} header;
	struct nic_server *server;
	struct nic_qp *qp;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &header, sizeof(header)))
		return TC_ACT_OK;
	if (header.version_ihl != TICK_VERSION_IHL)
		return TC_ACT_OK;
	server = LOOKUP(nic_servers, header.id_fragment);
	qp = server ? LOOKUP(nic_qps, server->qpn_first) : 0;
	return qp ? bpf_redirect(qp->ifindex, BPF_F_INGRESS) : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
