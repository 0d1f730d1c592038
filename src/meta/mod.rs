//! Manifests and manifest lists: a reader that decodes only what is needed, and writers for what a commit changes.
