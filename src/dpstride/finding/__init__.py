"""The main job, in parts: from a model and data to schedules, scores, files and a page, without a terminal.

`inputs` reads the model and the data, `job` prepares and runs; each objective has a file of its own name.
`dpstride.pipeline.find` and the verbs `find` and `demo` call these.
"""
