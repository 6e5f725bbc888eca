"""The native kernel that reads JSON lines, and how it comes into a process."""
