/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a leaf reads of a RoCE packet that comes from one of its servers, and how it sends it up. */
#ifndef RAILBED_SWITCH_PACKET_H
#define RAILBED_SWITCH_PACKET_H

#include "declare.h"
#include "forward.h"
#include "random.h"
#include "switch.h"
#include <linux/in.h>
#include <stdbool.h>

#define QP_MASK 0xffffffu
#define HOST_MASK 0xffffffu	/* NICs' addresses are 10.0.0.0/8: 24 bits tell them apart */
#define FRAGMENT 0x3fffu	/* more fragments, or an offset */
#define OCCUPY_TRIES 8

ARRAY(switch_settings, struct switch_settings, 1);
ARRAY(switch_ports, struct switch_port, PORTS_MAX);
ARRAY(switch_leaves, struct switch_leaf, LEAVES_MAX);
ARRAY(switch_uplinks, struct switch_uplink, LEAVES_MAX * UPLINKS_MAX);
ARRAY(switch_reach, struct switch_reach, LEAVES_MAX * LEAVES_MAX);
ARRAY(switch_pairs, struct switch_pair, PAIRS_MAX);
ARRAY(switch_groups, struct switch_group, GROUPS_MAX);
/* Keyed by a flow: see flow_key() and connection_key(). */
MAP(BPF_MAP_TYPE_HASH, 0, switch_flows, __u64, struct switch_flow, FLOWS_MAX);
MAP(BPF_MAP_TYPE_HASH, 0, switch_flowlets, __u64, struct switch_flowlet, FLOWLETS_MAX);

union headers {
	struct {
		__u64 ethernet[2];
		IPV4_FIELDS;
		UDP_FIELDS;
		BTH_FIELDS;
	};
	__u64 words[7];
};
#define HEADERS_BYTES 50	/* up to the QP number */

struct packet {
	union headers headers;
	struct switch_leaf *leaf;
	struct switch_group *group;
	__u32 at;		/* the leaf's number */
	__u32 group_at;
	__u32 pair_at;		/* this leaf and the target's */
	__u32 bytes;		/* on a real link */
};

static __always_inline bool is_roce(struct __sk_buff *skb, union headers *headers)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, 0, (__u8 *)headers + FRAME_PAD, HEADERS_BYTES))
		return false;
	return headers->version_ihl == 0x45 && headers->protocol == IPPROTO_UDP && headers->ttl > 1 &&
	       headers->target_port == bpf_htons(ROCE_UDP_PORT) && !(headers->id_fragment & bpf_htonl(FRAGMENT));
}

/* Whether it is RoCE from a server of this leaf to another leaf that has a group; if so, `packet` says all about it. */
static __always_inline bool goes_up(struct __sk_buff *skb, struct packet *packet)
{
	__u32 ifindex = skb->ifindex, target, at;
	struct switch_settings *set = LOOKUP(switch_settings, zero);
	struct switch_port *port = LOOKUP(switch_ports, ifindex);
	struct switch_reach *reach;

	if (!set || !port || !port->leaf || !is_roce(skb, &packet->headers))
		return false;
	packet->at = port->leaf - 1;
	target = (bpf_ntohl(packet->headers.target) - set->network) >> (set->prefix_shift & 31);
	if (target >= set->leaves || target >= LEAVES_MAX)
		return false;
	at = packet->at * LEAVES_MAX + target;
	reach = LOOKUP(switch_reach, at);
	if (!reach || !reach->group)
		return false;
	packet->group_at = reach->group - 1;
	packet->pair_at = (packet->at * set->leaves + target) % PAIRS_MAX;
	packet->group = LOOKUP(switch_groups, packet->group_at);
	packet->leaf = LOOKUP(switch_leaves, packet->at);
	packet->bytes = skb->len == set->elided_bytes ? set->full_bytes : skb->len;
	return packet->group && packet->group->count && packet->leaf;
}

static __always_inline bool has_member(const struct switch_group *group, __u32 slot)
{
	return group->members[slot / 64 % (UPLINKS_MAX / 64)] >> slot % 64 & 1;
}

/* Number `place` of the group's uplinks. */
static __always_inline __u32 member(const struct packet *packet, __u32 place)
{
	return packet->group->slots[place & (UPLINKS_MAX - 1)];
}

/* A slot that the verifier knows to be one: the compiler, which may know it already, would leave the mask out. */
static __always_inline __u32 bounded(__u32 slot)
{
	asm volatile("" : "+r"(slot));
	return slot & (UPLINKS_MAX - 1);
}

/* The link is busy for this packet's length longer; not if its buffer is full, where the packet will be dropped. */
static __always_inline void occupy(struct switch_leaf *leaf, const struct switch_uplink *uplink, __u32 slot, __u32 bytes)
{
	__u64 now = bpf_ktime_get_ns(), length_ns = (__u64)bytes * uplink->mult >> (uplink->shift & 63);
	__u64 *busy = &leaf->busy_ns[slot];

	for (int tries = 0; tries < OCCUPY_TRIES; tries++) {
		__u64 before = *(volatile __u64 *)busy, start = before > now ? before : now;

		if (start - now > uplink->limit_ns)
			return;
		if (__sync_val_compare_and_swap(busy, before, start + length_ns) == before)
			return;
	}
}

/* Out of the leaf's uplink `slot`; `timed` (a constant) where the mode asks how long links are busy. */
static __always_inline int send_up(struct __sk_buff *skb, struct packet *packet, __u32 slot, bool timed)
{
	struct switch_uplink *uplink;
	struct switch_pair *pair;
	__u32 at;

	slot = bounded(slot);
	at = packet->at * UPLINKS_MAX + slot;
	uplink = LOOKUP(switch_uplinks, at);
	if (!uplink)
		return TC_ACT_SHOT;
	if (timed) {
		occupy(packet->leaf, uplink, slot, packet->bytes);
		pair = LOOKUP(switch_pairs, packet->pair_at);
		if (pair)
			COUNT(pair->sent_bytes[slot], packet->bytes);
	}
	COUNT(packet->leaf->sent_packets[slot], 1);
	COUNT(packet->leaf->sent_bytes[slot], packet->bytes);
	packet->headers.ethernet[0] = uplink->head[0];
	packet->headers.ethernet[1] = uplink->head[1];
	decrement_ttl(&packet->headers.ttl, &packet->headers.ip_checksum);
	if (bpf_skb_store_bytes(skb, 0, (__u8 *)&packet->headers + FRAME_PAD, REWRITTEN_BYTES, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(uplink->ifindex, 0);
}

#endif
