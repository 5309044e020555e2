/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps of the cell fabric, and what a cell looks like on a link:
 *
 *     02 index  leaf(2)  nic(2) | 02+flags count  source(2)  number(2) | 88b6 | cell_bytes of the IP packet, zeros after its end
 *
 * The header stands where Ethernet has its addresses: between two boxes of a cell fabric nobody needs any, and a cell
 * header of 14 bytes is what such fabrics have. EtherType: IEEE 802's second local experimental one.
 */
#ifndef RAILBED_DDC_CELL_H
#define RAILBED_DDC_CELL_H

#include "declare.h"
#include "forward.h"
#include "ddc.h"
#include <stdbool.h>

ARRAY(ddc_settings, struct ddc_settings, 1);
ARRAY(ddc_ports, struct ddc_port, PORTS_MAX);
ARRAY(ddc_switches, struct ddc_switch, SWITCHES_MAX);
ARRAY(ddc_nics, struct ddc_nic, NICS_MAX);
ARRAY(ddc_pairs, struct ddc_pair, PAIRS_MAX);
ARRAY(ddc_groups, struct ddc_group, GROUPS_MAX);
ARRAY(ddc_routes, struct ddc_route, SWITCHES_MAX * LEAVES_MAX);
ARRAY(ddc_slots, struct ddc_slot, SLOTS_MAX);
ARRAY(ddc_buffers, struct ddc_buffer, SLOTS_MAX);

#define CELL_TYPE 0x88b6
#define CELL_HEAD 14
#define LOCAL_ADDRESS 0x02
#define ELIDED 0x04 /* cells after the packet's last real byte carry nothing */
#define REMINDER 0x08 /* never on a link: look after a pair */

/* On the stack, where everything must be aligned; hence the two bytes before it. */
union cell {
	struct {
		__u16 pad;
		__u8 mark, index;
		__be16 leaf, nic;
		__u8 flags, count;
		__be16 source, number, type;
	};
	__u64 words[2];
};

/*
 * What the compiler knows about a number may be more than the verifier does; forgotten, it is checked where it says so.
 * For 64-bit numbers: older verifiers learn little from a comparison of 32 bits.
 */
#define FORGET(number) asm volatile("" : "+r"(number))

/* `bytes` bytes, if any, from `from` to the frame at `offset`. A length's least value, too, must be plain: one less is 0 or more. */
static __always_inline void store(struct __sk_buff *skb, __u32 offset, const void *from, __u32 bytes)
{
	__u64 less = (__u64)bytes - 1;

	FORGET(less);
	if (less < CELL_MAX)
		bpf_skb_store_bytes(skb, offset, from, less + 1, 0);
}

static __always_inline long read_cell(struct __sk_buff *skb, union cell *cell)
{
	return bpf_skb_load_bytes(skb, 0, (__u8 *)cell + FRAME_PAD, CELL_HEAD);
}

static __always_inline long write_head(struct __sk_buff *skb, const void *head)
{
	return bpf_skb_store_bytes(skb, 0, (const __u8 *)head + FRAME_PAD, CELL_HEAD, 0);
}

static __always_inline struct ddc_switch *switch_of(__u32 ifindex, __u32 *at)
{
	struct ddc_port *port = LOOKUP(ddc_ports, ifindex);

	if (!port || !port->at)
		return 0;
	*at = port->at - 1;
	return LOOKUP(ddc_switches, *at);
}

static __always_inline __u32 pair_at(const struct ddc_settings *set, const union cell *cell)
{
	return bpf_ntohs(cell->source) * set->nics + bpf_ntohs(cell->nic);
}

/* The next of switch `at`'s ports towards `leaf`; 0 if it has none. */
static __always_inline __u32 next_port(__u32 at, __u32 leaf)
{
	__u32 where = at * LEAVES_MAX + (leaf & (LEAVES_MAX - 1)), group_at, turn;
	struct ddc_route *route = LOOKUP(ddc_routes, where);
	struct ddc_group *group;
	struct ddc_port *port;

	if (!route || !route->group)
		return 0;
	group_at = route->group - 1;
	group = LOOKUP(ddc_groups, group_at);
	if (!group || !group->count)
		return 0;
	turn = __sync_fetch_and_add(&group->turn, 1) % group->count;
	port = LOOKUP(ddc_ports, group->ports[turn & (LINKS_MAX - 1)]);
	if (port)
		COUNT(port->cells, 1);
	return group->ports[turn & (LINKS_MAX - 1)];
}

/*
 * Make the kernel see that the frame's EtherType has changed: taking off a VLAN tag that is in the frame is the one way
 * for a program to have it read anew (net/core/skbuff.c, skb_vlan_pop). RED marks only what the kernel takes for IP.
 */
static __always_inline void read_ethertype(struct __sk_buff *skb)
{
	bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1);
	bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 1);
	bpf_skb_vlan_pop(skb);
	bpf_skb_vlan_pop(skb);
}

#endif
