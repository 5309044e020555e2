// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * ECN marker for kernels without sch_red. It runs on clsact egress of a switch port, just before the root qdisc (a TBF),
 * and does what a switch's WRED does with the instantaneous queue length q that the packet finds:
 *
 *     P(q) = 0 below kmin, pmax * (q - kmin) / (kmax - kmin) between, 1 from kmax on
 *
 * ECT becomes CE; Not-ECT is dropped with the same P (SONiC ecn_all). Each draw is independent, unlike sch_red's, and
 * comes from the port's own generator, so that its seed decides it.
 *
 * q is qstats.backlog of the root qdisc: bytes, kept under the qdisc's lock. True of TBF, also with a child; not of
 * qdiscs that count per CPU (pfifo_fast) nor of mq.
 *
 * The kernel's structures are declared with the fields that are used; libbpf finds the real offsets when it loads (CO-RE).
 */
#include "packet.h"
#include "maps.h"
#include "random.h"
#include <linux/pkt_cls.h>
#include <stdbool.h>

struct gnet_stats_queue {
	__u32 backlog;
} __attribute__((preserve_access_index));

struct Qdisc {
	struct gnet_stats_queue qstats;
} __attribute__((preserve_access_index));

struct net_device {
	struct Qdisc *qdisc;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *skb) __ksym; /* Linux 6.2 */

PER_PORT_MAP(port_config, struct port_config);
PER_PORT_MAP(port_counters, struct port_counters);
PER_PORT_MAP(port_depth, struct port_depth);

static __always_inline __u32 backlog_bytes(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);

	return kernel_skb->dev->qdisc->qstats.backlog;
}

static __always_inline bool law_chooses(struct port_config *port, __u32 q)
{
	__u32 kmin = port->kmin_bytes, kmax = port->kmax_bytes;

	if (q < kmin)
		return false;
	if (q >= kmax)
		return true;
	return draw(&port->rng_state) < (__u64)port->pmax * (q - kmin) / (kmax - kmin);
}

static __always_inline void count_depth(struct port_depth *depth, __u32 bucket_bytes, __u32 q, bool chosen)
{
	__u32 bucket = bucket_bytes ? q / bucket_bytes : 0;

	if (bucket >= DEPTH_BUCKETS)
		bucket = DEPTH_BUCKETS - 1;
	COUNT(depth->seen[bucket], 1);
	if (chosen)
		COUNT(depth->chosen[bucket], 1);
}

/* Tries are bounded for the verifier; a lost one means that another CPU has just raised it. */
static __always_inline void raise_to(__u64 *maximum, __u64 value)
{
	for (int tries = 0; tries < 8; tries++) {
		__u64 before = *(volatile __u64 *)maximum;

		if (before >= value || __sync_val_compare_and_swap(maximum, before, value) == before)
			return;
	}
}

static __always_inline void count_arrival(struct port_counters *counters, struct __sk_buff *skb, enum ecn ecn)
{
	COUNT(counters->packets, 1);
	COUNT(counters->bytes, skb->len);
	if (ecn == CE)
		COUNT(counters->ce_packets, 1);
	else if (ecn == NOT_ECT)
		COUNT(counters->not_ect_packets, 1);
	else
		COUNT(counters->ect_packets, 1);
}

/* The kernel's own routine, as sch_red uses it; it refuses a header that is shared (a clone) or not linear. */
static __always_inline bool set_ce(struct __sk_buff *skb)
{
	__u32 ip_bytes = skb->protocol == bpf_htons(ETH_P_IP) ? IPV4_MIN_BYTES : IPV6_BYTES;

	return !bpf_skb_pull_data(skb, ETH_HLEN + ip_bytes) && bpf_skb_ecn_set_ce(skb);
}

static __always_inline int mark_or_drop(struct port_counters *counters, struct __sk_buff *skb, enum ecn ecn)
{
	if (ecn == NOT_ECT || !set_ce(skb)) {
		COUNT(counters->early_dropped_packets, 1);
		return TC_ACT_SHOT;
	}
	COUNT(counters->marked_packets, 1);
	if (ecn == CE)
		COUNT(counters->remarked_packets, 1);
	return TC_ACT_OK;
}

SEC("tc")
int marker(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct port_config *port = bpf_map_lookup_elem(&port_config, &ifindex);
	struct port_counters *counters = bpf_map_lookup_elem(&port_counters, &ifindex);
	struct port_depth *depth = bpf_map_lookup_elem(&port_depth, &ifindex);
	enum ecn ecn = ecn_of(skb);

	if (!port || !counters || !depth)
		return TC_ACT_OK;
	if (ecn == NOT_IP) {
		COUNT(counters->other_packets, 1);
		return TC_ACT_OK;
	}

	__u32 q = backlog_bytes(skb);
	bool chosen = law_chooses(port, q);

	count_arrival(counters, skb, ecn);
	count_depth(depth, port->bucket_bytes, q, chosen);
	raise_to(&counters->depth_max_bytes, q);
	return chosen ? mark_or_drop(counters, skb, ecn) : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
