//! Commits against a catalog that races, refuses and loses answers.

mod answers;
mod dangling;
mod engine;
mod expire;
mod limits;
mod replace;
mod settle;
mod validate;
mod world;

#[tokio::test]
async fn retries_follow_the_table_within_reason() {
    use std::time::Duration;

    use super::CommitContext;
    use crate::run_id::RunId;

    let of = async |properties: &[(&str, &str)]| {
        let world = world::World::new(iceberg::spec::FormatVersion::V2, false, properties);
        let context = CommitContext::of_table(RunId(uuid::Uuid::nil()), &world.load().await.metadata);
        (context.retries, context.min_wait, context.max_wait)
    };
    let ms = Duration::from_millis;
    assert_eq!(of(&[]).await, (4, ms(100), ms(60_000)));
    let set =
        [("commit.retry.num-retries", "0"), ("commit.retry.min-wait-ms", "5"), ("commit.retry.max-wait-ms", "7000")];
    assert_eq!(of(&set).await, (0, ms(5), ms(7000)));
    let silly = [("commit.retry.num-retries", "99999"), ("commit.retry.max-wait-ms", "soon")];
    assert_eq!(of(&silly).await, (100, ms(100), ms(60_000)));
}
