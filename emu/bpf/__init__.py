"""BPF programs (C), their build, and the loader. Attaching them to ports is the fabric's job."""
