/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs ask of a packet, and how it looks. Reads through helpers, not skb->data: of a jumbo frame from an AF_PACKET socket
 * only the Ethernet header is linear. bpf_skb_load_bytes() follows fragments, bpf_skb_load_bytes_relative() does not.
 */
#ifndef RAILBED_PACKET_H
#define RAILBED_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IPV4_MIN_BYTES 20
#define IPV6_BYTES 40

#define ROCE_UDP_PORT 4791

/* On the stack everything must be aligned: frames there begin with two bytes before Ethernet. */
#define FRAME_PAD 2

/* Headers as they lie on the wire, for structures */
#define IPV4_FIELDS              \
	__u8 version_ihl, tos;   \
	__be16 ip_bytes;         \
	__be32 id_fragment;      \
	__u8 ttl, protocol;      \
	__be16 ip_checksum;      \
	__be32 source, target
#define UDP_FIELDS __be16 source_port, target_port, udp_bytes, udp_checksum
#define BTH_FIELDS          \
	__u8 opcode, flags; \
	__be16 pkey;        \
	__be32 target_qp, psn

/* RFC 3168, section 5 */
enum ecn { NOT_ECT = 0, ECT_1 = 1, ECT_0 = 2, CE = 3, NOT_IP = 4 };

#define COUNT(counter, by) __sync_fetch_and_add(&(counter), by)

static __always_inline int read_ip(struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	return bpf_skb_load_bytes(skb, ETH_HLEN + offset, to, size);
}

/* The low two bits of IPv4's second byte; IPv6's traffic class lies four bits higher (RFC 8200, section 3). */
static __always_inline enum ecn ecn_of(struct __sk_buff *skb)
{
	__u8 head[2];

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return NOT_IP;
	if (read_ip(skb, 0, head, sizeof(head)))
		return NOT_IP;
	return skb->protocol == bpf_htons(ETH_P_IP) ? head[1] & 3 : head[1] >> 4 & 3;
}

#endif
