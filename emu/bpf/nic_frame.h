/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames the NIC makes: each is its queue pair's constant head with lengths, opcode, PSN and one extension header filled
 * in, written over whatever packet is at hand, which is then cut or grown to length.
 */
#ifndef RAILBED_NIC_FRAME_H
#define RAILBED_NIC_FRAME_H

#include "packet.h"
#include "nic.h"
#include <stdbool.h>

/* BTH opcodes (Linux include/rdma/ib_pack.h) */
#define OPCODE_WRITE_IMM 0x0b
#define OPCODE_ACK 0x11
#define OPCODE_CNP 0x81

#define ACK_REQUEST 0x80000000u
#define PSN_MASK 0xffffffu
#define ACK_SYNDROME 0x1f000000u /* credits unlimited */
#define NAK_SYNDROME 0x60000000u /* PSN sequence error */
#define CNP_TOS (48 << 2 | 2)	 /* as captured from a ConnectX-4 Lx */
#define BTH_BECN 0x40000000u

/* Of frames, Ethernet header and iCRC included */
#define WRITE_BYTES 78		 /* and the payload */
#define ACK_BYTES 62
#define SACK_BYTES 82
#define CNP_BYTES 74
#define ICRC_BYTES 4
#define FRAME_HALVES 22

union frame {
	struct {
		__u16 pad;
		__u8 ethernet[14];
		IPV4_FIELDS;
		UDP_FIELDS;
		BTH_FIELDS;
		union {
			struct {
				__be64 va;
				__be32 rkey, message_bytes, immediate, icrc;
			} write;
			/* an ACK; also, with the rest, which of 128 PSNs from `base` on have arrived (MRC's SACK, in short) */
			struct {
				__be32 aeth, base;
				__be64 arrived[2];
				__be32 icrc;
			} ack;
		};
	};
	__u64 words[11];
	__u32 halves[FRAME_HALVES];
};

#define HEAD_WORDS 7

/* Ones' complement sums of bytes in wire order come out in wire order (RFC 1071). */
static __always_inline __be16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline void fill_head(union frame *frame, const struct nic_qp *qp, __u32 frame_bytes)
{
	__u32 ip_bytes = frame_bytes - ETH_HLEN;

#pragma unroll
	for (int i = 0; i < HEAD_WORDS; i++)
		frame->words[i] = qp->head[i];
	frame->ip_bytes = bpf_htons(ip_bytes);
	frame->udp_bytes = bpf_htons(ip_bytes - IPV4_MIN_BYTES);
	frame->ip_checksum = ~folded(qp->head_sum + bpf_htons(ip_bytes));
}

static __always_inline void change_tos(union frame *frame, __u8 tos)
{
	__u32 sum = (__u16)~frame->ip_checksum;

	frame->ip_checksum = ~folded(sum + bpf_htons(tos) + (__u16)~bpf_htons(frame->tos));
	frame->tos = tos;
}

/* Give the packet this length; what is new is zeros. What the packet at hand has beyond an ACK's headers is not: cut it first. */
static __always_inline long shape(struct __sk_buff *skb, __u32 bytes)
{
	if (skb->len == bytes)
		return 0;
	if (bytes > skb->len && skb->len > ACK_BYTES)
		if (bpf_skb_change_tail(skb, ACK_BYTES, 0))
			return -1;
	return bpf_skb_change_tail(skb, bytes, 0);
}

/* Write the headers over the packet at hand; 0 if that went well. */
static __always_inline long write_frame(struct __sk_buff *skb, union frame *frame, __u32 bytes, __u32 headers)
{
	long error = shape(skb, bytes);

	/* without the flag fq takes it for one of the packet's old flow, and may send it before an older one of its own */
	return error ?: bpf_skb_store_bytes(skb, 0, (__u8 *)frame + FRAME_PAD, headers, BPF_F_INVALIDATE_HASH);
}

#endif
