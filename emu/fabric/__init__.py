"""The live fabric: the only folder, with bpf and lab, that changes kernel state. Every object carries the run id."""
