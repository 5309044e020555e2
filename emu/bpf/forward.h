/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a switch does to a packet that it forwards without the kernel's FIB, or with it. */
#ifndef RAILBED_FORWARD_H
#define RAILBED_FORWARD_H

#include "packet.h"
#include <linux/pkt_cls.h>

#define REWRITTEN_BYTES 26	/* Ethernet, and IPv4 up to its checksum */

/* To the kernel's FIB. A packet must not bring a hash of its own, which its sender's RPS or fair queue may have left on it. */
static __always_inline int to_kernel(struct __sk_buff *skb)
{
	bpf_set_hash_invalid(skb);
	return TC_ACT_OK;
}

/* RFC 1141 */
static __always_inline void decrement_ttl(__u8 *ttl, __be16 *checksum)
{
	__u32 sum = *checksum + bpf_htons(0x0100);

	--*ttl;
	*checksum = sum + (sum >= 0xffff);
}

#endif
