"""From the bytes of a source to the frame that a converter sees: the native kernel, binding, kept columns."""
