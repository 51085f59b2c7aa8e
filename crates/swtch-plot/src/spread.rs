//! Moves the labels at the ends of lines apart where they would overlap.

/// Moves `wanted` heights (points from the top, in any order) apart until neighbours are `gap`
/// apart, between `top` and `bottom`; the order among them is kept. Where there is no room for all
/// they go beyond the bottom.
///
/// Those that collide become a block around their middle, as do blocks that collide (the
/// pool-adjacent-violators algorithm), so that each label stays as near to its line as it can.
pub fn apart(wanted: &[f64], gap: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut blocks: Vec<LabelBlock> = Vec::new();
    for index in order {
        blocks.push(LabelBlock::of(wanted[index], index, (top, bottom), gap));
        while let [.., above, below] = blocks.as_slice() {
            if above.first + gap * length(above) <= below.first {
                break;
            }
            let merged = above.join(below, gap, (top, bottom));
            blocks.truncate(blocks.len() - 2);
            blocks.push(merged);
        }
    }
    let mut heights = vec![0.0; wanted.len()];
    for block in &blocks {
        let mut height = block.first;
        for index in &block.members {
            heights[*index] = height;
            height += gap;
        }
    }
    heights
}

/// Labels one below the other without room between.
#[derive(Debug)]
struct LabelBlock {
    /// Height of the first label, from the top.
    first: f64,
    /// Sum over its labels of the height that the first would have if that label got its wish.
    wishes: f64,
    members: Vec<usize>,
}

#[expect(clippy::cast_precision_loss, reason = "a few labels")]
fn length(block: &LabelBlock) -> f64 {
    block.members.len() as f64
}

impl LabelBlock {
    fn of(wanted: f64, index: usize, limits: (f64, f64), gap: f64) -> Self {
        Self {
            first: 0.0,
            wishes: wanted,
            members: vec![index],
        }
        .placed(limits, gap)
    }

    fn join(&self, below: &Self, gap: f64, limits: (f64, f64)) -> Self {
        Self {
            first: 0.0,
            wishes: self.wishes + below.wishes - length(below) * length(self) * gap,
            members: [self.members.as_slice(), &below.members].concat(),
        }
        .placed(limits, gap)
    }

    fn placed(mut self, (top, bottom): (f64, f64), gap: f64) -> Self {
        let last_start = bottom - gap * (length(&self) - 1.0);
        self.first = (self.wishes / length(&self)).min(last_start).max(top);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay_where_they_are() {
        assert_eq!(apart(&[80.0, 10.0], 16.0, (0.0, 100.0)), [80.0, 10.0]);
    }

    #[test]
    fn labels_that_collide_part_around_their_middle() {
        assert_eq!(
            apart(&[50.0, 50.0, 50.0], 16.0, (0.0, 100.0)),
            [34.0, 50.0, 66.0]
        );
    }

    #[test]
    fn labels_stay_between_the_edges() {
        assert_eq!(apart(&[99.0, 98.0], 16.0, (0.0, 100.0)), [100.0, 84.0]);
        assert_eq!(apart(&[0.0, 0.0], 16.0, (0.0, 100.0)), [0.0, 16.0]);
    }
}
