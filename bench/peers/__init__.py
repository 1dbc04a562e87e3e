"""The rivals of the benchmarks: real tools, used as their own documentation recommends."""
