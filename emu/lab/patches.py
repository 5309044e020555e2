"""The changes that make User-mode Linux reproducible, its timers fine and its death complete, and its switches hash apart."""

from __future__ import annotations

from pathlib import Path

from emu.lab.patch import Patch, apply_patch
from emu.lab.patches_multipath import MULTIPATH

__all__ = ["PATCHES", "Patch", "apply_patch", "apply_patches"]

SEEDED_RANDOM = Patch(
    name="seeded-random",
    file="arch/um/os-Linux/util.c",
    why="os_getrandom() is the one place where UML takes randomness from the host; with railbed.seed=N on the command "
    "line it answers from a counter-based generator (SplitMix64: Steele, Lea, Flood, OOPSLA 2014), so that every "
    "random number of the guest depends on N alone",
    old="""\
	return getrandom(buf, len, flags);
""",
    new="""\
	unsigned char *out = buf;
	size_t i;

	if (!railbed_seeded)
		return getrandom(buf, len, flags);
	for (i = 0; i < len; i++) {
		if (railbed_left == 0) {
			railbed_word = railbed_next();
			railbed_left = 8;
		}
		out[i] = railbed_word >> (8 * --railbed_left);
	}
	return len;
""",
)

SEED_STATE = Patch(
    name="seed-parameter",
    file="arch/um/os-Linux/util.c",
    why="state of the generator above and the parameter that starts it, read before anything asks for randomness",
    old="""\
ssize_t os_getrandom(void *buf, size_t len, unsigned int flags)
""",
    new="""\
static int railbed_seeded;
static unsigned long long railbed_seed, railbed_state, railbed_word, railbed_keys;
static unsigned int railbed_left;

static unsigned long long railbed_step(unsigned long long *state)
{
	unsigned long long z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static unsigned long long railbed_next(void)
{
	return railbed_step(&railbed_state);
}

void railbed_restart(void)
{
	railbed_keys = 0;
}

void railbed_key(unsigned char *key, unsigned long len)
{
	unsigned long long state = railbed_seed ^ (++railbed_keys << 32);
	unsigned long i;

	if (!railbed_seeded)
		return;
	for (i = 0; i < len; i++)
		key[i] = railbed_step(&state) >> 56;
}

static int __init railbed_seed_setup(char *line, int *add)
{
	railbed_seed = railbed_state = strtoull(line, NULL, 0);
	railbed_seeded = 1;
	return 0;
}
__uml_setup("railbed.seed=", railbed_seed_setup,
"railbed.seed=<N>\\n"
"    Answer every request for host randomness from a generator seeded with N.\\n\\n"
);

ssize_t os_getrandom(void *buf, size_t len, unsigned int flags)
""",
)

SEEDED_KEYS = Patch(
    name="seeded-keys",
    file="drivers/char/random.c",
    why="the key that random numbers come from depended on all that had gone into the pool before, down to the length of "
    "a path; with a seed it depends on the seed and on how many keys there were since the last restart",
    old="""\
	extract_entropy(key, sizeof(key));
""",
    new="""\
	extract_entropy(key, sizeof(key));
	{
		extern void railbed_key(unsigned char *key, unsigned long len);

		railbed_key(key, sizeof(key));
	}
""",
)

RESTARTED_KEYS = Patch(
    name="restarted-keys",
    file="drivers/char/random.c",
    why="the restart: a program that asks for a new key (RNDRESEEDCRNG) gets the first one of the seed again, so that a "
    "measurement's random numbers don't depend on what ran before it",
    old="""\
	case RNDRESEEDCRNG:
""",
    new="""\
	case RNDRESEEDCRNG:
		{
			extern void railbed_restart(void);

			railbed_restart();
		}
""",
)

FINE_TIMERS = Patch(
    name="fine-timers",
    file="arch/um/include/linux/time-internal.h",
    why="no timer may be armed closer than this many ns; 500 lets a TBF send at most one burst per 500 ns",
    old="#define TIMER_MIN_DELTA  500\n",
    new="#define TIMER_MIN_DELTA  1\n",
)

NO_ORPHANS = Patch(
    name="no-orphans",
    file="arch/um/os-Linux/skas/process.c",
    why="when the kernel process is killed, its traced guest processes must die with it: detached they would run on "
    "as host processes and make their system calls on the host",
    old="		   (void *) PTRACE_O_TRACESYSGOOD) < 0) {\n",
    new="		   (void *) (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0) {\n",
)

WIDE_REGISTERS = Patch(
    name="wide-registers",
    file="arch/x86/um/user-offsets.c",
    why="room for the register state of a guest process: 2696 bytes end at AVX-512, and on a CPU with AMX tiles (11008 "
    "bytes) the host refuses to restore a shorter one, so that init dies (Linux 6.13 sizes it at run time)",
    old="	DEFINE_LONGS(HOST_FP_SIZE, 2696);\n",
    new="	DEFINE_LONGS(HOST_FP_SIZE, 11008);\n",
)

LIGHT_TIMERS = Patch(
    name="light-timers",
    file="arch/um/os-Linux/signal.c",
    why="each virtual timer event cleared a whole register state, 11008 bytes now, of which the timer reads only these",
    old="""\
		memset(&regs, 0, sizeof(regs));
""",
    new="""\
	{
		memset(regs.gp, 0, sizeof(regs.gp));
		regs.is_user = 0;
	}
""",
)

FINE_CLOCK = Patch(
    name="fine-clock",
    file="arch/um/kernel/time.c",
    why="the clock counted in steps of 256 ns, so that a shaper saw each frame's time up to 256 ns late: 3.5 % too slow at "
    "6.7 us a frame, measured; what a look at the clock costs stays at 256 ns",
    old="""\
		return time_travel_time / TIMER_MULTIPLIER;
	}

	return os_nsecs() / TIMER_MULTIPLIER;
""",
    new="""\
		return time_travel_time;
	}

	return os_nsecs();
""",
)

FINE_CLOCK_RATE = Patch(
    name="fine-clock-rate",
    file="arch/um/kernel/time.c",
    why="the clock's rate as the patch above makes it",
    old="clocksource_register_hz(&timer_clocksource, NSEC_PER_SEC/TIMER_MULTIPLIER)",
    new="clocksource_register_hz(&timer_clocksource, NSEC_PER_SEC)",
)

PATCHES = (SEED_STATE, SEEDED_RANDOM, SEEDED_KEYS, RESTARTED_KEYS, FINE_TIMERS, NO_ORPHANS, WIDE_REGISTERS,
           LIGHT_TIMERS, FINE_CLOCK, FINE_CLOCK_RATE, *MULTIPATH)


def apply_patches(tree: Path, version: str, patches: tuple[Patch, ...] = PATCHES) -> None:
    """Apply each patch once to the source tree; MissingFeature when a text is not found exactly once."""
    for patch in patches:
        apply_patch(tree, version, patch)
