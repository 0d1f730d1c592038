//! Several futures at a time.

use std::future::Future;

use futures::stream::{self, StreamExt};

/// What `f` makes of the items, at most `limit` at a time, in the order in which they end.
pub fn concurrent<T, F: Future>(
    limit: usize,
    items: impl IntoIterator<Item = T>,
    f: impl FnMut(T) -> F,
) -> stream::BufferUnordered<stream::Iter<std::vec::IntoIter<F>>> {
    // Collected first: a stream over a closure that borrows is not provably `Send`.
    let futures: Vec<F> = items.into_iter().map(f).collect();
    stream::iter(futures).buffer_unordered(limit.max(1))
}
