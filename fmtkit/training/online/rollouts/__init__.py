"""Generation of answers: rollout functions and prefetch; the server that it may ask is in `training.vllm`.

One class is all that a trainer needs; it sits between TRL's and fmtkit's GRPO trainer:

    class FmtkitGRPOTrainer(RolloutTrainer): ...          # rollouts.trainer
    trainer = FmtkitGRPOTrainer(
        rollouts=read_settings(job.of_rollouts(), run=job.run),     # vllm.rollout_settings
        **rollout_objects(job.section("rl"), places),           # rollouts.loading
        model=..., args=..., ...                                         # TRL's own arguments
    )
    trainer.train(...)       # ends with `trainer.close_rollouts()`, also after an error

`rollout_objects` returns those of `rollout_func`, `tools` and `environment_factory` that are set,
loaded and checked. What RolloutTrainer overrides, and what a subclass may use:

    rows                     the rows of the batch that is generated and scored now
    rows_ahead(rows)         override: the rows that take this batch's place (re-rolling goes here);
                             called once for each generation batch, ahead of time if it is prefetched
    choose_rows(batch)       sets `rows` and returns them; an override of _generate_and_score_completions
                             begins with `inputs = self.choose_rows(inputs)`; a second call does nothing
    get_batch_samples        looks ahead in the batches, for the prefetch
    _generate                sync interval; takes what was made ahead; asks for the batches to come
    train                    closes what is open, whatever happens
    connect_rollouts         called by __init__; again by a test that puts its own server in place after
                             constructing with use_vllm=False (trainer.use_vllm, vllm_mode,
                             vllm_generation, _last_loaded_step = -1, then connect_rollouts())

A rollout function is called f(prompts, trainer) as TRL does, or f(prompts, trainer, rows) if it has the
attribute `takes_rows = True`: the rows are those of its own batch, also when it runs ahead of time.

Before a run, without torch: `fmtkit.training.vllm.plan` (combinations of keys), `loading.check_names`,
`fmtkit.training.vllm.ready` (versions, GPUs). In a training process, before the model is loaded:
`fmtkit.training.vllm.server_state.wait_for(job)`.
A server that is gone ends in ServerLostError, which every process raises between two steps: a checkpoint is
saved (`fmtkit.training.building.callbacks.saving`) before the run ends with exit code 1.

Without a rollout_func, prefetch, interval, LoRA sync or server, nothing here changes what TRL computes.
"""
