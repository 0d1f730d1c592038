//! Properties of planning over random tables, with naive models beside the real ones.
