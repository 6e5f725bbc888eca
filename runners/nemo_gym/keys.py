"""Keys of a NeMo Gym, under axolotl's names."""

from fmtkit.training.config.key import Key

KEYS: tuple[Key, ...] = (
    Key("nemo_gym_enabled", "bool", "nemo_gym", "take rewards from a NeMo Gym server"),
    Key("nemo_gym_dir", "text", "nemo_gym", "folder to which relative paths refer", is_path=True),
    Key("nemo_gym_auto_clone", "bool", "refused", "install it: pip install nemo-gym"),
    Key("nemo_gym_auto_start", "bool", "nemo_gym", "start the servers"),
    Key(
        "nemo_gym_config_paths",
        "texts",
        "nemo_gym",
        "configuration files of the servers",
        is_path=True,
    ),
    Key("nemo_gym_head_port", "count", "nemo_gym", "port of the head server"),
    Key(
        "nemo_gym_server_timeout", "number", "nemo_gym", "maximum seconds for the servers to start"
    ),
    Key("nemo_gym_verify_timeout", "number", "nemo_gym", "maximum seconds for scoring one answer"),
    Key("nemo_gym_run_timeout", "number", "nemo_gym", "maximum seconds for one rollout"),
    Key(
        "nemo_gym_datasets",
        "objects",
        "nemo_gym",
        "datasets, each with path, server_name and max_samples",
    ),
    Key("nemo_gym_model_name", "text", "nemo_gym", "name of the model in requests"),
    Key(
        "nemo_gym_multi_turn",
        "bool",
        "nemo_gym",
        "let the Gym's agent run multi-turn conversations",
    ),
    Key("nemo_gym_max_turns", "count", "nemo_gym", "maximum number of turns in a conversation"),
)
