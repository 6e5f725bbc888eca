"""The generated pages of the documentation, one module each."""
