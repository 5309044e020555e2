/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Random numbers that a seed decides: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014). Its state is a counter, so that two CPUs on one generator draw different numbers without a lock.
 */
#ifndef RAILBED_RANDOM_H
#define RAILBED_RANDOM_H

#include <linux/types.h>

#define SPLITMIX_STEP 0x9e3779b97f4a7c15ULL

/* Its output function: every bit of the result depends on every bit of `z`. */
static __always_inline __u64 mix(__u64 z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static __always_inline __u32 draw(__u64 *state)
{
	return mix(__sync_fetch_and_add(state, SPLITMIX_STEP) + SPLITMIX_STEP) >> 32;
}

/* A 32-bit draw or hash as one of 0 ... count-1, equally often. */
static __always_inline __u32 scaled(__u32 random, __u32 count)
{
	return (__u64)random * count >> 32;
}

#endif
