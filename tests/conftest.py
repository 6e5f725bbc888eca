"""What all tests share: no verdict depends on how fast a machine is."""

from hypothesis import settings

settings.register_profile("fmtkit", deadline=None)
settings.load_profile("fmtkit")
