"""The workloads, one file each: columns, contenders, checks and goals."""
