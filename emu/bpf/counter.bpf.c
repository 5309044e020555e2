// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What a NIC received, counted exactly on clsact ingress, and where its RoCE packets end: no RDMA stack listens on UDP
 * port 4791, so the host would answer each with an ICMP error. Capture sockets see the packets before this program does.
 *
 * Uses nothing of the kernel's own types, so that it loads into a kernel without BTF (the lab kernel, Linux 6.1).
 */
#include "packet.h"
#include "maps.h"
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>

#define IPV4_OFFSET_MASK 0x1fff /* fragment offset, RFC 791 */

/* BTH opcode: transport in the upper three bits, operation in the lower five (Linux include/rdma/ib_pack.h) */
#define OPCODE_CNP 0x81
#define RC_UC_RD_UD_XRC 0x2f /* transports 0-3 and 5 */
#define SEND_WRITE 0x000fff
#define READ_RESPONSE 0x01e000
#define SEND_WITH_INVALIDATE 0xc00000

enum kind { OTHER, ROCE_DATA, ROCE_CNP, ROCE_CONTROL };

PER_NIC_MAP(nic_config, struct nic_config);
PER_NIC_MAP(nic_counters, struct nic_counters);

/* Where UDP begins, from the start of the IP header; 0 if something else follows. No IPv6 extension headers. */
static __always_inline __u32 udp_offset(struct __sk_buff *skb)
{
	__u8 ip[IPV4_MIN_BYTES];

	if (read_ip(skb, 0, ip, sizeof(ip)))
		return 0;
	if (ip[0] >> 4 == 6)
		return ip[6] == IPPROTO_UDP ? IPV6_BYTES : 0;
	if (ip[9] != IPPROTO_UDP || ((ip[6] << 8 | ip[7]) & IPV4_OFFSET_MASK))
		return 0;
	return (ip[0] & 0x0f) * 4;
}

static __always_inline enum kind kind_of(struct __sk_buff *skb)
{
	__u8 udp_and_opcode[9];
	__u32 offset = udp_offset(skb);

	if (!offset || read_ip(skb, offset, udp_and_opcode, sizeof(udp_and_opcode)))
		return OTHER;
	if ((udp_and_opcode[2] << 8 | udp_and_opcode[3]) != ROCE_UDP_PORT)
		return OTHER;

	__u8 opcode = udp_and_opcode[8];
	__u32 with_payload = SEND_WRITE | READ_RESPONSE | SEND_WITH_INVALIDATE;

	if (opcode == OPCODE_CNP)
		return ROCE_CNP;
	if (RC_UC_RD_UD_XRC >> (opcode >> 5) & with_payload >> (opcode & 0x1f) & 1)
		return ROCE_DATA;
	return ROCE_CONTROL;
}

/* The NIC's counters, made at its first packet. */
static __always_inline struct nic_counters *counters_of(__u32 ifindex)
{
	struct nic_counters *counters = bpf_map_lookup_elem(&nic_counters, &ifindex);
	struct nic_counters zero = {};

	if (counters)
		return counters;
	bpf_map_update_elem(&nic_counters, &ifindex, &zero, BPF_NOEXIST); /* another CPU may have been first */
	return bpf_map_lookup_elem(&nic_counters, &ifindex);
}

static __always_inline void count_ecn(struct nic_counters *counters, enum ecn ecn)
{
	if (ecn == CE)
		COUNT(counters->ce_packets, 1);
	else if (ecn == NOT_ECT)
		COUNT(counters->not_ect_packets, 1);
	else if (ecn != NOT_IP)
		COUNT(counters->ect_packets, 1);
}

static __always_inline void count_data(struct nic_counters *counters, __u32 bytes)
{
	__u64 now = bpf_ktime_get_ns();

	COUNT(counters->roce_data_packets, 1);
	COUNT(counters->roce_data_bytes, bytes);
	if (!counters->first_ns)
		__sync_val_compare_and_swap(&counters->first_ns, 0, now);
	counters->last_ns = now;
}

static __always_inline void count(struct nic_counters *counters, __u32 bytes, enum ecn ecn, enum kind kind)
{
	COUNT(counters->packets, 1);
	COUNT(counters->bytes, bytes);
	count_ecn(counters, ecn);
	if (kind == ROCE_DATA)
		count_data(counters, bytes);
	else if (kind == ROCE_CNP)
		COUNT(counters->cnp_packets, 1);
	else
		COUNT(counters->other_packets, 1);
}

SEC("tc")
int counter(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	enum ecn ecn = ecn_of(skb);
	enum kind kind = ecn == NOT_IP ? OTHER : kind_of(skb);
	struct nic_counters *counters = counters_of(ifindex);
	struct nic_config *config;

	if (counters)
		count(counters, skb->len, ecn, kind);
	if (kind == OTHER)
		return TC_ACT_OK;
	config = bpf_map_lookup_elem(&nic_config, &ifindex);
	return config && config->pass_roce ? TC_ACT_OK : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
