// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A cell fabric (DDC: NCP and NCF) out of leaves and spines. Between two leaves there are only cells; servers, and what is
 * under one leaf, see Ethernet.
 *
 *     server -- ddc_in -- virtual output queues -- ddc_cut == spines: ddc_ncf == ddc_out -- server's port
 */
#include "ddc_ingress.h"
#include "ddc_egress.h"

/* Ingress of a leaf's ports to servers. */
SEC("tc")
int ddc_in(struct __sk_buff *skb)
{
	return enqueue(skb);
}

/* Behind a leaf's virtual output queues. */
SEC("tc")
int ddc_cut(struct __sk_buff *skb)
{
	union cell cell;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		return deliver_local(skb);
	if (skb->protocol != bpf_htons(CELL_TYPE) || read_cell(skb, &cell))
		return TC_ACT_SHOT;
	return cell.flags & REMINDER ? on_reminder(skb, &cell) : cut_packet(skb, &cell);
}

/* Ingress of every port of a spine: cells go on by their leaf alone. */
SEC("tc")
int ddc_ncf(struct __sk_buff *skb)
{
	struct ddc_switch *here;
	union cell cell;
	__u32 at, port;

	if (skb->protocol != bpf_htons(CELL_TYPE))
		return TC_ACT_OK;
	here = switch_of(skb->ifindex, &at);
	if (!here || read_cell(skb, &cell))
		return TC_ACT_SHOT;
	COUNT(here->cells_in, 1);
	port = next_port(at, bpf_ntohs(cell.leaf));
	if (port)
		return bpf_redirect(port, 0);
	COUNT(here->cells_no_path, 1);
	return TC_ACT_SHOT;
}

/* Ingress of a leaf's ports to spines. */
SEC("tc")
int ddc_out(struct __sk_buff *skb)
{
	union cell cell;

	if (skb->protocol != bpf_htons(CELL_TYPE))
		return TC_ACT_OK;
	return read_cell(skb, &cell) ? TC_ACT_SHOT : on_cell(skb, &cell);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
