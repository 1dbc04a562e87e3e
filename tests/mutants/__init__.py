"""Each safety rule taken back in its turn: a test must fail, or nothing defends the rule."""
