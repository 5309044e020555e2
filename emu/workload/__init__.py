"""What a training job sends: one iteration of a named model as events, and files of other tools read into the same. Pure."""
