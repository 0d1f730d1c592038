use arrow::array::*;

use super::*;

#[test]
fn placeholder() {}
