"""Which Eurekube this is; here, so that every part can say it without loading the public names."""

VERSION = "0.1.0"
