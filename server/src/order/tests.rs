use proptest::prelude::*;

use super::{Epoch, Piece, Remainder};

/// The rows (row group, row in it) that pieces name, one by one.
fn rows(pieces: &[Piece]) -> Vec<(usize, u64)> {
    pieces.iter().flat_map(|piece| (piece.skip..piece.skip + piece.take).map(|row| (piece.row_group, row))).collect()
}

fn all_rows(passing: &[u64]) -> Vec<(usize, u64)> {
    passing.iter().enumerate().flat_map(|(group, count)| (0..*count).map(move |row| (group, row))).collect()
}

#[test]
fn ranks_get_contiguous_spans_that_differ_by_a_row() {
    let epoch = Epoch::new(&[3, 0, 4], 3, 2, Remainder::Keep);
    let shares: Vec<_> = (0..3).map(|rank| epoch.share(rank)).collect();
    assert_eq!(shares.iter().map(|share| share.row_count).collect::<Vec<_>>(), [2, 2, 3]);
    assert_eq!(shares.iter().map(|share| share.step_count).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(
        epoch.pieces(&shares[1], 0),
        [Piece { row_group: 0, skip: 2, take: 1 }, Piece { row_group: 2, skip: 0, take: 1 }]
    );
    assert_eq!(epoch.pieces(&shares[2], 1), [Piece { row_group: 2, skip: 3, take: 1 }]);
}

#[test]
fn no_rows_are_no_steps() {
    for remainder in [Remainder::Keep, Remainder::Drop, Remainder::Pad] {
        let epoch = Epoch::new(&[0, 0], 4, 8, remainder);
        assert_eq!((epoch.sent_row_count(), epoch.step_count_max()), (0, 0));
        assert!(epoch.pieces(&epoch.share(3), 0).is_empty());
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let epoch = Epoch::new(&[u64::MAX / 2, 7], 1 << 20, 1 << 20, Remainder::Keep);
    let total: u64 = (0..1_u64 << 20).step_by(1 << 14).map(|rank| epoch.share(rank).row_count).sum();
    assert!(total > 0);
    assert_eq!(epoch.share((1 << 20) - 1).row_count, epoch.row_count().div_ceil(1 << 20));
}

proptest! {
    #[test]
    fn keep_sends_every_row_exactly_once(
        passing in prop::collection::vec(0_u64..40, 0..12), world in 1_u64..9, batch in 1_u64..20,
    ) {
        let epoch = Epoch::new(&passing, world, batch, Remainder::Keep);
        let sent: Vec<_> = (0..world).flat_map(|rank| rows(&epoch.pieces(&epoch.share(rank), 0))).collect();
        prop_assert_eq!(sent, all_rows(&passing));
        let steps = (0..world).map(|rank| epoch.share(rank).step_count);
        prop_assert_eq!(steps.max(), Some(epoch.step_count_max()));
    }

    #[test]
    fn drop_and_pad_give_equal_whole_steps(
        passing in prop::collection::vec(0_u64..40, 1..12), world in 1_u64..9, batch in 1_u64..20,
    ) {
        for remainder in [Remainder::Drop, Remainder::Pad] {
            let epoch = Epoch::new(&passing, world, batch, remainder);
            let mut sent = 0;
            for rank in 0..world {
                let share = epoch.share(rank);
                prop_assert_eq!(share.step_count, epoch.step_count_max());
                prop_assert_eq!(share.row_count + share.padding_rows, share.step_count * batch);
                sent += share.row_count + share.padding_rows;
                let read = rows(&epoch.pieces(&share, 0)).len() as u64;
                let missing = share.row_count + share.padding_rows - read;
                prop_assert!(missing == 0 || share.step_count == 1, "only a sole batch repeats itself");
                prop_assert!(share.step_count == 0 || read > 0);
            }
            prop_assert_eq!(sent, epoch.sent_row_count());
        }
    }

    #[test]
    fn a_resumed_rank_reads_what_the_uninterrupted_one_had_left(
        passing in prop::collection::vec(0_u64..40, 1..12), world in 1_u64..9, batch in 1_u64..20, pad in any::<bool>(),
    ) {
        let remainder = if pad { Remainder::Pad } else { Remainder::Keep };
        let epoch = Epoch::new(&passing, world, batch, remainder);
        for rank in 0..world {
            let share = epoch.share(rank);
            let whole = rows(&epoch.pieces(&share, 0));
            for step in 0..share.step_count {
                let resumed = rows(&epoch.pieces(&share, step));
                let start = (step * batch) as usize;
                prop_assert_eq!(resumed.as_slice(), &whole[start.min(whole.len())..]);
            }
        }
    }
}
