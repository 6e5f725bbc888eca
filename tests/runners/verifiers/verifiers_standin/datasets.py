"""As much of `datasets` as an environment of a test needs."""


class Dataset(list):
    @classmethod
    def from_list(cls, rows):
        return cls(rows)
