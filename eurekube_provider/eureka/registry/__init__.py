"""What a registry does for as long as it runs: read the servers' lists, renew, sweep, and recover."""
