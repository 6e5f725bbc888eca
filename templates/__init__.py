"""Chat templates, one Jinja file each."""
