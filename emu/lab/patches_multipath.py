"""ECMP in the lab kernel as switches do it: a hash seed per namespace, over the packet's own fields.

Source: Linux commit 4ee2a8cace3f (6.11), whose knob and key these are; Documentation/networking/ip-sysctl.rst.
"""

from __future__ import annotations

from emu.lab.patch import Patch

HASH_SEED = Patch(
    name="hash-seed",
    file="include/net/netns/ipv4.h",
    why="net.ipv4.fib_multipath_hash_seed, which Linux has since 6.11 (commit 4ee2a8cace3f): ECMP's seed of one namespace. "
    "Without it all switches of a fabric hash alike, so that the second tier can't spread what the first has sorted",
    superseded="fib_multipath_hash_seed",
    old="	u32 sysctl_fib_multipath_hash_fields;\n",
    new="	u32 sysctl_fib_multipath_hash_fields;\n	u32 sysctl_fib_multipath_hash_seed;\n",
)

HASH_SEED_KNOB = Patch(
    name="hash-seed-knob",
    file="net/ipv4/sysctl_net_ipv4.c",
    why="the knob of the seed above",
    superseded="fib_multipath_hash_seed",
    old="""\
		.procname	= "fib_multipath_hash_fields",
""",
    new="""\
		.procname	= "fib_multipath_hash_seed",
		.data		= &init_net.ipv4.sysctl_fib_multipath_hash_seed,
		.maxlen		= sizeof(u32),
		.mode		= 0644,
		.proc_handler	= proc_douintvec,
	},
	{
		.procname	= "fib_multipath_hash_fields",
""",
)

KEYED_FLOW_HASH = Patch(
    name="keyed-flow-hash",
    file="net/core/flow_dissector.c",
    why="the flow hash under a key of the caller's",
    superseded="flow_hash_from_keys_seed",
    old="""\
static inline u32 ___skb_get_hash(const struct sk_buff *skb,
""",
    new="""\
u32 railbed_flow_hash(struct flow_keys *keys, const siphash_key_t *key)
{
	return __flow_hash_from_keys(keys, key);
}

static inline u32 ___skb_get_hash(const struct sk_buff *skb,
""",
)

SEEDED_MULTIPATH = Patch(
    name="seeded-multipath",
    file="net/ipv4/route.c",
    why="every hash that chooses a path takes the namespace's seed, repeated, as its key; without one, the kernel's own",
    superseded="fib_multipath_hash_from_keys",
    old="""\
static u32 fib_multipath_custom_hash_outer(const struct net *net,
""",
    new="""\
extern u32 railbed_flow_hash(struct flow_keys *keys, const siphash_key_t *key);

static u32 railbed_path_hash(const struct net *net, struct flow_keys *keys)
{
	u64 seed = READ_ONCE(net->ipv4.sysctl_fib_multipath_hash_seed);
	siphash_key_t key = { { seed << 32 | seed, seed << 32 | seed } };

	return seed ? railbed_flow_hash(keys, &key) : flow_hash_from_keys(keys);
}
#define flow_hash_from_keys(keys) railbed_path_hash(net, keys)

static u32 fib_multipath_custom_hash_outer(const struct net *net,
""",
)

WIRE_HASH = Patch(
    name="wire-hash",
    file="net/ipv4/route.c",
    why="a switch sees what is on the wire. In one kernel a packet arrives with the hash that its sender's socket or fair "
    "queue gave it, which has no seed: every tier would pick alike",
    old="""\
			/* short-circuit if we already have L4 hash present */
			if (skb->l4_hash)
				return skb_get_hash_raw(skb) >> 1;
""",
    new="""\
			/* railbed: the hash of the packet's own fields, whatever it comes with */
""",
)

MULTIPATH = (HASH_SEED, HASH_SEED_KNOB, KEYED_FLOW_HASH, SEEDED_MULTIPATH, WIRE_HASH)
