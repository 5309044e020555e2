"""What a training job sends: patterns, parallelism, and files of other tools."""
