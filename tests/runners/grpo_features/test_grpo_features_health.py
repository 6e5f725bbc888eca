"""What the logs of dynamic sampling say, in place of the general rule or beside it."""

from test_grpo_health import SOUND

from fmtkit.core.runner import HealthLimits, find
from fmtkit.training.building.online_health import HEALTH, OnlineHealth


def test_a_rule_of_a_section_stands_for_the_general_one_of_its_name() -> None:
    rules = [*find("grpo").hooks(HEALTH)]
    silent = {**SOUND, "frac_reward_zero_std": 1.0, "reward_std": 0.0}
    watch = OnlineHealth(HealthLimits(), rules)
    found = [text for step in range(1, 60) for text in watch.see(silent, step)]
    assert [text.rpartition(", ")[2] for text in found] == ["or set trl.dynamic_sampling: true"]
    unfilled = {**SOUND, "dynamic_sampling/unfilled_groups": 2.0}
    watch = OnlineHealth(HealthLimits(), rules)
    (text,) = [text for step in range(1, 20) for text in watch.see(unfilled, step)]
    assert "trl.dynamic_sampling left 2 groups of a batch without a signal, 5 logs in a row" in text
