"""The Ray runtime: the trainer's roles as a fleet of processes, led by a supervisor."""
