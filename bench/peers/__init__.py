"""The rivals: the real thing, written as its own documentation would have a user write it."""
