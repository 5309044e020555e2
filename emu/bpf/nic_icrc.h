/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The iCRC of the frames the NIC makes, and of those it receives, where a run asks for it (emu/roce/icrc.py has the rules).
 *
 * A CRC is linear: the register past n zero bytes is four table look-ups, whatever n. So there is a table for each
 * 4 << i bytes: the first takes the headers in, word by word, and a few take the payload, which is zeros, in one go.
 * Words go in as they lie in memory, low byte first. A frame without its payload carries the iCRC of the whole one.
 */
#ifndef RAILBED_NIC_ICRC_H
#define RAILBED_NIC_ICRC_H

#include "nic_ready.h"
#include "nic_frame.h"

ARRAY(nic_crc_steps, struct nic_crc_step, CRC_STEPS);

#define LOCAL_HEADER_REGISTER 0xdebb20e3u /* past the eight 0xff that stand for InfiniBand's local header (rxe_icrc.c) */
#define IP_AT 4				  /* in frame->halves */
#define ICRC_AT(headers) (((headers) + FRAME_PAD - ICRC_BYTES) / 4)
#define PIECE_WORDS 16

static __always_inline __u32 past_word(const struct nic_crc_step *step, __u32 crc)
{
	return step->sums[crc & 255] ^ step->sums[256 + (crc >> 8 & 255)] ^ step->sums[512 + (crc >> 16 & 255)] ^
	       step->sums[768 + (crc >> 24)];
}

__noinline __u32 past_zeros(__u32 crc, __u32 bytes)
{
	for (__u32 i = 0; i < CRC_STEPS; i++) {
		__u32 at = i;
		struct nic_crc_step *step = bytes >> i & 4 ? LOOKUP(nic_crc_steps, at) : 0;

		if (step)
			crc = past_word(step, crc);
	}
	return crc;
}

/* What routers change counts as ones; lengths are those of the whole frame. */
static __always_inline void mask(union frame *frame, __u32 elided_bytes)
{
	frame->tos = frame->ttl = 0xff;
	frame->ip_checksum = frame->udp_checksum = 0xffff;
	frame->target_qp |= bpf_htonl(0xff000000u);
	frame->ip_bytes = bpf_htons(bpf_ntohs(frame->ip_bytes) + elided_bytes);
	frame->udp_bytes = bpf_htons(bpf_ntohs(frame->udp_bytes) + elided_bytes);
}

/* Of a frame that goes on with zeros after half `end`; it is masked by this. */
__noinline __u32 masked_icrc(union frame *frame, __u32 end, __u32 zeros, __u32 elided_bytes)
{
	struct nic_crc_step *word = LOOKUP(nic_crc_steps, zero);
	__u32 crc = LOCAL_HEADER_REGISTER;

	if (!word || !frame)
		return 0;
	mask(frame, elided_bytes);
	for (__u32 i = IP_AT; i < end && i < FRAME_HALVES; i++)
		crc = past_word(word, crc ^ frame->halves[i]);
	return ~past_zeros(crc, zeros + elided_bytes);
}

/* The verifier wants the whole of what is handed over to have a value. */
static __always_inline __u32 icrc_of(union frame *frame, __u32 headers, __u32 bytes, __u32 elided_bytes)
{
#pragma unroll
	for (__u32 i = ICRC_AT(headers); i < FRAME_HALVES; i++)
		frame->halves[i] = 0;
	frame->pad = 0;
	return masked_icrc(frame, ICRC_AT(headers), bytes - headers, elided_bytes);
}

/* write_frame(), and the iCRC. What is elided is zeros. */
static __always_inline long write_roce(struct __sk_buff *skb, union frame *frame, __u32 bytes, __u32 headers,
				       const struct nic_settings *set, __u32 elided_bytes)
{
	long error = write_frame(skb, frame, bytes, headers);
	__u32 icrc;

	if (error || !set->icrc)
		return error;
	icrc = icrc_of(frame, headers, bytes, elided_bytes);
	return bpf_skb_store_bytes(skb, bytes - ICRC_BYTES, &icrc, sizeof(icrc), 0);
}

/* No engine sends anything but zeros, and only of zeros the sum is 0. Piece by piece, because the stack is small. */
static __noinline bool all_zeros(struct __sk_buff *skb, __u32 from, __u32 to)
{
	for (int i = 0; i < MTU_MAX_BYTES / 8 / PIECE_WORDS && from < to; i++) {
		__u64 piece[PIECE_WORDS] = {};
		__u32 bytes = (to - from - 1) % sizeof(piece) + 1; /* the odd piece comes first */

		if (bpf_skb_load_bytes(skb, from, piece, bytes) || bpf_csum_diff(0, 0, (__be32 *)piece, sizeof(piece), 0))
			return false;
		from += bytes;
	}
	return true;
}

static __always_inline bool carries_icrc(struct __sk_buff *skb, __u32 headers, __u32 elided_bytes)
{
	union frame frame;
	__u32 carried, bytes = skb->len;

	if (bytes < headers || bpf_skb_load_bytes(skb, 0, (__u8 *)&frame + FRAME_PAD, headers) ||
	    bpf_skb_load_bytes(skb, bytes - ICRC_BYTES, &carried, sizeof(carried)))
		return false;
	return carried == icrc_of(&frame, headers, bytes, elided_bytes);
}

/* Is the frame that arrived whole? One of a kind that the engine doesn't know passes. */
static __noinline bool arrived_whole(struct __sk_buff *skb, __u32 opcode, const struct nic_settings *set)
{
	if (opcode == OPCODE_WRITE_IMM)
		return carries_icrc(skb, WRITE_BYTES, set->elided && skb->len == WRITE_BYTES ? set->mtu_bytes : 0) &&
		       all_zeros(skb, WRITE_BYTES - ICRC_BYTES, skb->len - ICRC_BYTES);
	if (opcode == OPCODE_ACK && skb->len == SACK_BYTES)
		return carries_icrc(skb, SACK_BYTES, 0);
	if (opcode == OPCODE_ACK)
		return carries_icrc(skb, ACK_BYTES, 0);
	return opcode != OPCODE_CNP || carries_icrc(skb, CNP_BYTES, 0);
}

#endif
