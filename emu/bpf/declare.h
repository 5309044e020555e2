/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How maps are declared and looked up in. */
#ifndef RAILBED_DECLARE_H
#define RAILBED_DECLARE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(kind, flags, name, key_type, value_type, entries) \
	struct {                                              \
		__uint(type, kind);                           \
		__uint(map_flags, flags);                     \
		__uint(max_entries, entries);                 \
		__type(key, key_type);                        \
		__type(value, value_type);                    \
	} name SEC(".maps")

/* In memory that Python writes and reads too. */
#define ARRAY(name, value_type, entries) MAP(BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, name, __u32, value_type, entries)

static const __u32 zero; /* the key of a map's only entry */

#define LOOKUP(map, key) bpf_map_lookup_elem(&(map), &(key))

#endif
