/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The ingress half of a leaf. A packet takes the next credit of its egress port, wherever that is: a time, which it waits
 * for in its virtual output queue, one of the flows of the leaf's fair queue. Then it is cut.
 *
 * Credits are given in the order of arrival over all ingress leaves; the scheduler of a real egress port takes turns
 * between virtual output queues, which comes to the same when all of them are busy with packets of one length.
 */
#ifndef RAILBED_DDC_INGRESS_H
#define RAILBED_DDC_INGRESS_H

#include "ddc_cell.h"

#define BYTE_SHIFT 20
#define CREDIT_TRIES 8
#define TARGET_OFFSET (ETH_HLEN + 16)

/* The packet that is being cut, a copy for each CPU: a program is not interrupted by another on its CPU. */
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, 0, ddc_scratch, __u32, struct ddc_buffer, 1);
ARRAY(ddc_zeros, struct ddc_buffer, 1);

union packet_head {
	struct {
		union cell cell;
		IPV4_FIELDS;
		__u32 end;
	};
	__u64 words[5];
};

/* The NIC with this address: its number. */
static __always_inline struct ddc_nic *nic_of(const struct ddc_settings *set, __be32 target, __u32 *number)
{
	__u32 place = bpf_ntohl(target) - set->network;
	struct ddc_nic *nic;

	*number = place >> 1;
	if (!(place & 1) || *number >= set->nics)
		return 0;
	nic = LOOKUP(ddc_nics, *number);
	return nic && nic->ifindex ? nic : 0;
}

static __always_inline __u32 full_bytes(const struct ddc_settings *set, __u32 bytes)
{
	return bytes == set->elided_bytes ? set->full_bytes : bytes;
}

/* When the packet may go: it gets the port for as long as it takes at credit speed. */
static __always_inline __u64 take_credit(struct ddc_nic *nic, const struct ddc_settings *set, __u32 bytes)
{
	__u64 now = bpf_ktime_get_ns(), at = now + set->credit_rtt_ns;
	__u64 length = (bytes * nic->byte_ns + (1 << BYTE_SHIFT) - 1) >> BYTE_SHIFT;

	for (int tries = 0; tries < CREDIT_TRIES; tries++) {
		__u64 before = *(volatile __u64 *)&nic->clock_ns;

		at = before > now + set->credit_rtt_ns ? before : now + set->credit_rtt_ns;
		if (__sync_val_compare_and_swap(&nic->clock_ns, before, at + length) == before)
			break;
	}
	COUNT(nic->packets, 1);
	COUNT(nic->bytes, bytes);
	COUNT(nic->wait_ns, at - now);
	if (at - now > nic->wait_max_ns)
		nic->wait_max_ns = at - now;
	return at;
}

static __always_inline bool can_take(struct __sk_buff *skb, union packet_head *head)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, 0, (__u8 *)head + FRAME_PAD, ETH_HLEN + IPV4_MIN_BYTES))
		return false;
	return head->version_ihl >> 4 == 4 && head->ttl > 1 && bpf_ntohs(head->ip_bytes) >= IPV4_MIN_BYTES &&
	       bpf_ntohs(head->ip_bytes) <= PACKET_MAX && bpf_ntohs(head->ip_bytes) + ETH_HLEN <= skb->len;
}

/* From a server, to the virtual output queue; what isn't for a NIC, or needs an answer from this router, to the kernel. */
static __always_inline int enqueue(struct __sk_buff *skb)
{
	struct ddc_settings *set = LOOKUP(ddc_settings, zero);
	union packet_head head;
	struct ddc_switch *leaf;
	struct ddc_nic *nic;
	__u32 number, at;
	__u64 when;

	leaf = switch_of(skb->ifindex, &at);
	if (!set || !leaf || !leaf->leaf || !can_take(skb, &head))
		return to_kernel(skb);
	nic = nic_of(set, head.target, &number);
	if (!nic)
		return to_kernel(skb);
	decrement_ttl(&head.ttl, &head.ip_checksum);
	if (nic->leaf == leaf->leaf - 1) {
		head.words[0] = nic->head[0];
		head.words[1] = nic->head[1];
	} else {
		head.cell = (union cell){ .mark = LOCAL_ADDRESS, .leaf = bpf_htons(nic->leaf), .nic = bpf_htons(number),
					  .flags = LOCAL_ADDRESS, .source = bpf_htons(leaf->leaf - 1),
					  .type = bpf_htons(CELL_TYPE) };
	}
	if (bpf_skb_store_bytes(skb, 0, (__u8 *)&head + FRAME_PAD, REWRITTEN_BYTES, 0))
		return TC_ACT_SHOT;
	when = take_credit(nic, set, ETH_HLEN + full_bytes(set, bpf_ntohs(head.ip_bytes)));
	bpf_skb_set_tstamp(skb, when, BPF_SKB_TSTAMP_DELIVERY_MONO);
	bpf_set_hash(skb, number);
	return bpf_redirect(leaf->voq_ifindex, 0);
}

/* Out of the queue, to a server of the same leaf. */
static __always_inline int deliver_local(struct __sk_buff *skb)
{
	struct ddc_settings *set = LOOKUP(ddc_settings, zero);
	struct ddc_switch *leaf;
	struct ddc_nic *nic;
	__u32 number, at;
	__be32 target;

	leaf = switch_of(skb->ifindex, &at);
	if (!set || !leaf || bpf_skb_load_bytes(skb, TARGET_OFFSET, &target, sizeof(target)))
		return TC_ACT_SHOT;
	nic = nic_of(set, target, &number);
	if (!nic)
		return TC_ACT_SHOT;
	COUNT(leaf->packets_local, 1);
	return bpf_redirect(nic->ifindex, 0);
}

struct cut {
	union cell cell;
	__u32 at, leaf;
	__u32 bytes, cell_bytes;
};

/* Cell `index`: its header, its slice of the packet, and zeros where the packet has ended. */
static __noinline int send_cell(struct __sk_buff *skb, struct cut *cut, struct ddc_switch *here, __u32 index)
{
	struct ddc_buffer *packet = LOOKUP(ddc_scratch, zero), *zeros = LOOKUP(ddc_zeros, zero);
	__u64 from = index * cut->cell_bytes;
	__u32 bytes, rest, port;

	FORGET(from);
	if (!packet || !zeros || from > PACKET_MAX)
		return 0;
	cut->cell.index = index;
	if (write_head(skb, &cut->cell))
		return 0;
	bytes = cut->bytes > from ? cut->bytes - from : 0;
	if (bytes > cut->cell_bytes)
		bytes = cut->cell_bytes;
	rest = cut->cell_bytes - bytes;
	store(skb, CELL_HEAD, (__u8 *)packet + from, bytes);
	if (bytes || from - cut->bytes < cut->cell_bytes) /* later ones have their zeros already */
		store(skb, CELL_HEAD + bytes, zeros, rest);
	port = next_port(cut->at, cut->leaf);
	if (port) {
		COUNT(here->cells_out, 1);
		bpf_clone_redirect(skb, port, 0); /* refused where the queue is full: as lost as on any other queue */
	} else {
		COUNT(here->cells_no_path, 1);
	}
	return 0;
}

/* Out of the queue, to another leaf: in cells. */
static __always_inline int cut_packet(struct __sk_buff *skb, const union cell *head)
{
	struct ddc_settings *set = LOOKUP(ddc_settings, zero);
	struct ddc_buffer *packet = LOOKUP(ddc_scratch, zero);
	struct cut cut = { .cell = *head, .leaf = bpf_ntohs(head->leaf) };
	struct ddc_switch *here = switch_of(skb->ifindex, &cut.at);
	struct ddc_pair *pair;
	__u32 where, full, count;
	__u64 bytes;
	__be16 length;

	if (!set || !packet || !here || bpf_skb_load_bytes(skb, ETH_HLEN + 2, &length, sizeof(length)))
		return TC_ACT_SHOT;
	where = pair_at(set, head);
	pair = LOOKUP(ddc_pairs, where);
	bytes = bpf_ntohs(length);
	FORGET(bytes);
	cut.cell_bytes = set->cell_bytes;
	if (!pair || bytes < IPV4_MIN_BYTES || bytes > PACKET_MAX || cut.cell_bytes < CELL_MIN || cut.cell_bytes > CELL_MAX)
		return TC_ACT_SHOT;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, packet, bytes) || bpf_skb_change_tail(skb, CELL_HEAD + cut.cell_bytes, 0))
		return TC_ACT_SHOT;
	cut.bytes = bytes;
	full = full_bytes(set, bytes);
	count = (full + cut.cell_bytes - 1) / cut.cell_bytes;
	cut.cell.count = count;
	cut.cell.flags = LOCAL_ADDRESS | (full == bytes ? 0 : ELIDED);
	cut.cell.number = bpf_htons(__sync_fetch_and_add(&pair->sent, 1));
	COUNT(here->packets_in, 1);
	COUNT(here->bytes_in, ETH_HLEN + full);
	for (__u32 i = 0; i < CELLS_MAX && i < count; i++)
		send_cell(skb, &cut, here, i);
	return TC_ACT_SHOT;
}

#endif
