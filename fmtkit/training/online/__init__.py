"""Online methods, whose trainers make answers and judge them: from a job to TRL's trainers.

`build` makes a trainer from a job, with its rewards and its server. Before a run, without torch: `plan`
and `group_rule` (keys and sizes), `checks` (names and rows). `samples`, `samples_page` and `keep_samples`
are what a user watches.
"""
