"""``eurekube``, also ``kubectl eurekube``: the command line, on top of everything else."""
