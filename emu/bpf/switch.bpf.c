// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * How a leaf chooses the uplink of a RoCE packet: a program for each mode, one of which runs on clsact ingress of the
 * leaf's ports towards servers. The mode is the program that is attached; none asks which it is. What isn't RoCE to another leaf,
 * and what a mode has no path for, the kernel forwards.
 *
 * How much is queued at an uplink the program can't ask where the kernel has no BTF. It keeps, for each uplink, the time at
 * which what it has sent up will have left (busy_ns), by the shaper's own arithmetic: for a TBF that gets all its packets
 * from here and whose burst is one frame, that is what the queue holds, the frame on the link included. What the
 * kernel forwards up beside it isn't seen.
 */
#include "switch_packet.h"

/*
 * The slot, of group `group_at`, with the shortest wait in whole frames; of those alike the one that was given the fewest bytes
 * for the target's leaf, so that links down from the spines fill evenly too; of those the one with the fewest bytes in all.
 * Global, so that the verifier checks it once, with any result.
 */
__noinline __u32 least_busy(__u32 leaf_at, __u32 group_at, __u32 pair_at)
{
	struct switch_settings *set = LOOKUP(switch_settings, zero);
	struct switch_leaf *leaf = LOOKUP(switch_leaves, leaf_at);
	struct switch_group *group = LOOKUP(switch_groups, group_at);
	struct switch_pair *pair = LOOKUP(switch_pairs, pair_at);
	__u64 now = bpf_ktime_get_ns(), frame_ns = set ? set->frame_ns ?: 1 : 1, fewest_there = 0, fewest = 0;
	__u64 alike = ~0ull, longer = ~0ull; /* busy until then or later: as long a wait as the best one's, a longer one */
	__u32 best = 0;

	if (!leaf || !group || !pair)
		return 0;
	for (__u32 i = 0; i < UPLINKS_MAX && i < group->count; i++) {
		__u32 slot = group->slots[i] & (UPLINKS_MAX - 1);
		__u64 busy = leaf->busy_ns[slot], there = pair->sent_bytes[slot], frames;

		if (busy >= longer)
			continue;
		if (busy >= alike && (there > fewest_there || (there == fewest_there && leaf->sent_bytes[slot] >= fewest)))
			continue;
		if (busy < alike) {
			frames = busy > now ? (busy - now) / frame_ns : 0;
			alike = frames ? now + frames * frame_ns : 0;
			longer = now + (frames + 1) * frame_ns;
		}
		fewest_there = there;
		fewest = leaf->sent_bytes[slot];
		best = slot;
	}
	return best;
}

/* A flow as ECMP sees it: the two addresses and the UDP source port; the rest is the same in all RoCE packets. */
static __always_inline __u64 flow_key(const union headers *headers)
{
	__u64 source = bpf_ntohl(headers->source) & HOST_MASK, target = bpf_ntohl(headers->target) & HOST_MASK;

	return source << 40 | target << 16 | bpf_ntohs(headers->source_port);
}

/* A reliable connection's direction: where it comes in, where it goes, and to which queue pair there. */
static __always_inline __u64 connection_key(__u32 ifindex, const union headers *headers)
{
	__u64 port = ifindex & 0xffff, target = bpf_ntohl(headers->target) & HOST_MASK;

	return port << 48 | target << 24 | (bpf_ntohl(headers->target_qp) & QP_MASK);
}

static __always_inline __u32 enhanced_hash(const struct packet *packet)
{
	__u64 qp = bpf_ntohl(packet->headers.target_qp) & QP_MASK;

	return mix(flow_key(&packet->headers) ^ mix(packet->leaf->hash_seed * SPLITMIX_STEP + qp)) >> 32;
}

static __always_inline int unknown(struct __sk_buff *skb, struct packet *packet)
{
	COUNT(packet->leaf->unknown, 1);
	return to_kernel(skb);
}

static __always_inline int follow(struct __sk_buff *skb, struct packet *packet, __u64 key)
{
	struct switch_flow *flow = LOOKUP(switch_flows, key);

	if (!flow || !has_member(packet->group, flow->slot))
		return unknown(skb, packet);
	COUNT(flow->packets, 1);
	return send_up(skb, packet, flow->slot, false);
}

SEC("tc")
int pick_ecmp(struct __sk_buff *skb)
{
	return to_kernel(skb);
}

SEC("tc")
int pick_eecmp(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return send_up(skb, &packet, member(&packet, scaled(enhanced_hash(&packet), packet.group->count)), false);
}

SEC("tc")
int pick_path(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return follow(skb, &packet, flow_key(&packet.headers));
}

SEC("tc")
int pick_path_qp(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return follow(skb, &packet, connection_key(skb->ifindex, &packet.headers));
}

SEC("tc")
int pick_spray(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return send_up(skb, &packet, least_busy(packet.at, packet.group_at, packet.pair_at), true);
}

SEC("tc")
int pick_spray_random(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return send_up(skb, &packet, member(&packet, scaled(draw(&packet.leaf->random), packet.group->count)), false);
}

SEC("tc")
int pick_spray_rr(struct __sk_buff *skb)
{
	struct packet packet;

	if (!goes_up(skb, &packet))
		return to_kernel(skb);
	return send_up(skb, &packet, member(&packet, __sync_fetch_and_add(&packet.leaf->turn, 1) % packet.group->count), false);
}

static __always_inline struct switch_flowlet *flowlet_of(const struct packet *packet)
{
	__u64 key = flow_key(&packet->headers);
	struct switch_flowlet *flowlet = LOOKUP(switch_flowlets, key), fresh = {};

	if (flowlet)
		return flowlet;
	bpf_map_update_elem(&switch_flowlets, &key, &fresh, BPF_NOEXIST);
	return LOOKUP(switch_flowlets, key);
}

SEC("tc")
int pick_flowlet(struct __sk_buff *skb)
{
	struct switch_settings *set = LOOKUP(switch_settings, zero);
	struct switch_flowlet *flowlet;
	struct packet packet;
	__u64 now, before;

	if (!set || !goes_up(skb, &packet))
		return to_kernel(skb);
	flowlet = flowlet_of(&packet);
	if (!flowlet)
		return unknown(skb, &packet); /* more flows than there is room for */
	now = bpf_ktime_get_ns();
	before = flowlet->last_ns;
	flowlet->last_ns = now;
	if (!flowlet->flowlets || now - before > set->flowlet_gap_ns || !has_member(packet.group, flowlet->slot)) {
		flowlet->slot = least_busy(packet.at, packet.group_at, packet.pair_at);
		flowlet->flowlets++;
	}
	return send_up(skb, &packet, flowlet->slot, true);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
