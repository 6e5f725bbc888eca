"""Which type is meant where none is named, what a type leaves unread, and what to do about it."""
