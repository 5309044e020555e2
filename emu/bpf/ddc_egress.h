/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The egress half of a leaf: cells are put together in a table that all leaves share, and packets leave in the order in
 * which they were cut, for each pair of ingress leaf and egress port. A complete packet that an older one holds back waits
 * until that is complete too or has had timeout_ns, counted from when the wait began; then the older one is lost.
 * What keeps that time is a reminder, a frame that waits in the leaf's fair queue: at most one a pair.
 *
 * Tables and pairs have no locks: one CPU serves all ports of a leaf.
 */
#ifndef RAILBED_DDC_EGRESS_H
#define RAILBED_DDC_EGRESS_H

#include "ddc_cell.h"

#define PROBES 16
#define USED (1ull << 63)
#define RUN_MAX 64  /* packets delivered for one that was waited for; a reminder goes on with the rest */
#define SKIP_MAX 256
#define LENGTH_PLACE ((FRAME_PAD + ETH_HLEN + 2) / 2) /* of IP's total length, in a buffer, in 16-bit words */
#define REMINDER_BYTES 62
#define REMINDER_FLOW NICS_MAX

static __always_inline __u64 key_of(__u32 pair_at, __u32 number)
{
	return USED | (__u64)pair_at << 16 | (number & 0xffff);
}

/* Where its search begins: packets that follow one another are far apart, so that held back ones leave room between them. */
static __always_inline __u32 place_of(__u64 key)
{
	return key * 0x9e3779b97f4a7c15ull >> 40;
}

/* The packet's place in the table, + 1; 0 if it has none. */
__noinline __u32 find(__u64 key)
{
	for (__u32 i = 0; i < PROBES; i++) {
		__u32 at = (place_of(key) + i) & (SLOTS_MAX - 1);
		struct ddc_slot *slot = LOOKUP(ddc_slots, at);

		if (slot && slot->key == key)
			return at + 1;
	}
	return 0;
}

/* A place for it, free or taken from one that has been waiting for its last cells for longer than `timeout_ns`; + 1, or 0. */
__noinline __u32 claim(__u64 key, __u64 now, __u64 timeout_ns)
{
	for (__u32 i = 0; i < PROBES; i++) {
		__u32 at = (place_of(key) + i) & (SLOTS_MAX - 1);
		struct ddc_slot *slot = LOOKUP(ddc_slots, at);

		if (!slot || (slot->key && (slot->bytes || now - slot->since_ns < timeout_ns)))
			continue;
		slot->key = key;
		slot->arrived = 0;
		slot->since_ns = now;
		slot->bytes = 0;
		return at + 1;
	}
	return 0;
}

/* A cell's bytes into the buffer; a function of its own, so that its numbers stay in registers where they are checked. */
static __noinline long keep(struct __sk_buff *skb, struct ddc_buffer *buffer, __u64 from, __u64 bytes)
{
	FORGET(from);
	FORGET(bytes);
	if (from > PACKET_MAX || bytes < CELL_MIN || bytes > CELL_MAX)
		return -1;
	return bpf_skb_load_bytes(skb, CELL_HEAD, (__u8 *)buffer + ETH_HLEN + FRAME_PAD + from, bytes);
}

/* Add the cell to its packet; 1 if that is complete now. */
static __always_inline int collect(struct __sk_buff *skb, const union cell *cell, struct ddc_switch *here,
				   const struct ddc_settings *set, __u64 key)
{
	__u64 now = bpf_ktime_get_ns(), bit = 1ull << (cell->index & 63);
	__u32 from = cell->index * set->cell_bytes, at;
	struct ddc_buffer *buffer;
	struct ddc_slot *slot;

	at = find(key) ?: claim(key, now, set->timeout_ns);
	if (!at) {
		COUNT(here->cells_no_room, 1);
		return 0;
	}
	at--;
	slot = LOOKUP(ddc_slots, at);
	buffer = LOOKUP(ddc_buffers, at);
	if (!slot || !buffer)
		return 0;
	if (slot->arrived & bit) {
		COUNT(here->cells_twice, 1);
		return 0;
	}
	if (!(cell->flags & ELIDED) || from < set->elided_bytes)
		if (keep(skb, buffer, from, set->cell_bytes))
			return 0;
	slot->arrived |= bit;
	if (slot->arrived != ~0ull >> ((CELLS_MAX - cell->count) & 63))
		return 0;
	slot->bytes = bpf_ntohs(*((__be16 *)buffer + LENGTH_PLACE));
	return 1;
}

/* Make the frame at hand the packet in slot `at`, as it leaves by `nic`'s port, and free the slot; 0 if that went well. */
static __noinline int rebuild(struct __sk_buff *skb, struct ddc_nic *nic, __u32 at)
{
	struct ddc_slot *slot = LOOKUP(ddc_slots, at);
	struct ddc_buffer *buffer = LOOKUP(ddc_buffers, at);
	__u64 bytes;

	if (!slot || !buffer)
		return -1;
	bytes = slot->bytes + ETH_HLEN;
	FORGET(bytes);
	slot->key = 0;
	if (bytes < ETH_HLEN + IPV4_MIN_BYTES || bytes > ETH_HLEN + PACKET_MAX)
		return -1;
	buffer->words[0] = nic->head[0];
	buffer->words[1] = nic->head[1];
	if (skb->len != bytes && bpf_skb_change_tail(skb, bytes, 0))
		return -1;
	if (bpf_skb_store_bytes(skb, 0, (__u8 *)buffer + FRAME_PAD, bytes, 0))
		return -1;
	if (skb->protocol != bpf_htons(ETH_P_IP))
		read_ethertype(skb);
	return 0;
}

/* Its place in the table, + 1, if the pair's next packet is complete. */
static __always_inline __u32 next_complete(__u32 where, const struct ddc_pair *pair)
{
	__u32 at = find(key_of(where, pair->next)), place = at - 1;
	struct ddc_slot *slot = at ? LOOKUP(ddc_slots, place) : 0;

	return slot && slot->bytes ? at : 0;
}

/* Deliver the pair's next packet, if it is complete: 1. */
static __noinline int deliver_next(struct __sk_buff *skb, struct ddc_switch *here, struct ddc_nic *nic, __u32 where)
{
	struct ddc_pair *pair = LOOKUP(ddc_pairs, where);
	__u32 at = pair ? next_complete(where, pair) : 0;

	if (!at || !pair)
		return 0;
	pair->next++;
	pair->held--;
	COUNT(here->packets_out, 1);
	if (!rebuild(skb, nic, at - 1))
		bpf_clone_redirect(skb, nic->ifindex, 0);
	return 1;
}

/* Send this leaf a frame that comes back at `when` to look after the pair. */
static __noinline int remind(struct __sk_buff *skb, struct ddc_switch *here, const union cell *cell, __u64 when)
{
	union cell reminder = *cell;

	reminder.flags = LOCAL_ADDRESS | REMINDER;
	reminder.type = bpf_htons(ETH_P_IP); /* a departure time is for IP packets */
	if (bpf_skb_change_tail(skb, REMINDER_BYTES, 0) || write_head(skb, &reminder))
		return 0;
	if (skb->protocol != bpf_htons(ETH_P_IP))
		read_ethertype(skb);
	bpf_skb_set_tstamp(skb, when, BPF_SKB_TSTAMP_DELIVERY_MONO);
	bpf_set_hash(skb, REMINDER_FLOW + bpf_ntohs(cell->nic));
	reminder.type = bpf_htons(CELL_TYPE);
	if (!write_head(skb, &reminder))
		bpf_clone_redirect(skb, here->voq_ifindex, 0);
	return 0;
}

/* What a frame of the cell fabric is about, where it leaves it; `where` is the pair's place. */
struct egress {
	struct ddc_settings *set;
	struct ddc_switch *here;
	struct ddc_nic *nic;
	struct ddc_pair *pair;
	__u32 where;
};

static __always_inline bool look_up(struct __sk_buff *skb, const union cell *cell, struct egress *of)
{
	__u32 number = bpf_ntohs(cell->nic), at, where;

	of->set = LOOKUP(ddc_settings, zero);
	of->here = switch_of(skb->ifindex, &at);
	of->nic = LOOKUP(ddc_nics, number);
	if (!of->set || !of->here || !of->nic)
		return false;
	where = pair_at(of->set, cell);
	of->where = where;
	of->pair = LOOKUP(ddc_pairs, where);
	return of->pair;
}

/* What can be delivered now goes out; what is held back then is given time from now on. */
static __always_inline void go_on(struct __sk_buff *skb, const union cell *cell, const struct egress *of)
{
	struct ddc_pair *pair = of->pair;
	__u64 now = bpf_ktime_get_ns();
	__u32 run;

	if (!pair->held)
		return;
	for (run = 0; run < RUN_MAX; run++)
		if (!deliver_next(skb, of->here, of->nic, of->where))
			break;
	if (run)
		pair->gap_ns = now;
	if (!pair->held || pair->armed)
		return;
	pair->armed = 1;
	remind(skb, of->here, cell, run == RUN_MAX ? now : pair->gap_ns + of->set->timeout_ns);
}

/* Give up what holds the pair's complete packets back; how many. */
__noinline int give_up(__u32 where)
{
	struct ddc_pair *pair = LOOKUP(ddc_pairs, where);
	int lost = 0;

	for (int i = 0; i < SKIP_MAX && pair && pair->held && !next_complete(where, pair); i++) {
		__u32 at = find(key_of(where, pair->next)), place = at - 1;
		struct ddc_slot *slot = at ? LOOKUP(ddc_slots, place) : 0;

		if (slot)
			slot->key = 0;
		pair->next++;
		lost++;
	}
	return lost;
}

static __always_inline int on_reminder(struct __sk_buff *skb, const union cell *cell)
{
	struct egress of;

	if (!look_up(skb, cell, &of))
		return TC_ACT_SHOT;
	of.pair->armed = 0;
	if (of.pair->held && bpf_ktime_get_ns() - of.pair->gap_ns >= of.set->timeout_ns)
		COUNT(of.here->packets_lost, give_up(of.where));
	go_on(skb, cell, &of);
	return TC_ACT_SHOT;
}

static __always_inline int on_cell(struct __sk_buff *skb, const union cell *cell)
{
	struct ddc_switch *here;
	struct ddc_pair *pair;
	struct egress of;
	__s16 ahead;
	__u64 key;
	__u32 at;

	if (!look_up(skb, cell, &of))
		return TC_ACT_SHOT;
	here = of.here;
	pair = of.pair;
	COUNT(here->cells_in, 1);
	if (here->leaf - 1 != bpf_ntohs(cell->leaf)) {
		COUNT(here->cells_no_path, 1);
		return TC_ACT_SHOT;
	}
	ahead = bpf_ntohs(cell->number) - pair->next;
	if (ahead < 0) {
		COUNT(here->cells_late, 1);
		return TC_ACT_SHOT;
	}
	key = key_of(of.where, bpf_ntohs(cell->number));
	if (!collect(skb, cell, here, of.set, key))
		return TC_ACT_SHOT;
	if (!ahead && !pair->held) { /* the usual case */
		at = find(key);
		pair->next++;
		COUNT(here->packets_out, 1);
		return at && !rebuild(skb, of.nic, at - 1) ? bpf_redirect(of.nic->ifindex, 0) : TC_ACT_SHOT;
	}
	if (!pair->held++)
		pair->gap_ns = bpf_ktime_get_ns();
	if (pair->held > here->held_max)
		here->held_max = pair->held;
	go_on(skb, cell, &of);
	return TC_ACT_SHOT;
}

#endif
