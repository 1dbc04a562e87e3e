"""The command line ``eurekube``, also ``kubectl eurekube``, on top of all other packages."""
