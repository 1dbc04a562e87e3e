"""The work of a registry for as long as it runs: read lists, renew, and repair."""
